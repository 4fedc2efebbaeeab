"""`slipstream stream|consumer|server cluster`: who leads, and which servers have copies.

They ask a cluster of nats-servers; a server that is alone has nobody to hand over to, and says so.
`actions` has what the three have in common.
"""
