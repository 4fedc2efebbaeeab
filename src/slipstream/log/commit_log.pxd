from slipstream.log.commit_entry cimport put_head
from slipstream.log.segment_bytes cimport BatchCopy
from slipstream.wire.buffer cimport OutBuffer
