"""`slipstream`, the command: `main` has the table of all commands and the modules that have them.

    main, completion                         finds the command; what may come next on the line
    stream/  consumer/  message/  kv  ...    commands; a folder where one subject has several files
    choose, config_options, graphs           what several commands ask for, set and draw
    session                                  options and environment become a connection
    output, prompts, progress                what is printed, asked for, and drawn meanwhile
    line, spellings, global_options          how a line is read
    values, advice                           durations and sizes as words; what helps with an error

Folders' `__init__`s import nothing: a line loads the module of its command and what that needs.
"""
