"""The console: streams, consumers, buckets and messages of any NATS server in a browser.

    command     `slipstream console`: options, and a web server around the app
    embedded    `slipstream serve --console`: the app on a server's monitoring port
    app         routes, errors, what opens and closes with the app
    guard       what a request must bring before a page sees it
    pages/      one module for each part of the navigation
    render      templates and how values are shown
    sampler     the last minutes of rates and lag          sessions    who is logged in
    reading     pages of stored messages                   query       filters on messages
    bodies      views of a message's body, with masks       avro        records of Avro files

It speaks the public protocol only, as the user who is logged in, so that the server decides what
may be seen and done. It stands on the command line, of which it shares words and explanations,
and needs the extra `slipstream[console]`; nothing else imports it, but the server loads `embedded`
by its name where the console is asked for.
"""
