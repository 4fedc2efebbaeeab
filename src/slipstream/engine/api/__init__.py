"""The JetStream API: requests on `$JS.API.>` and what answers them."""
