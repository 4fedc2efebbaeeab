from slipstream.log.segment_bytes cimport SegmentCopy
