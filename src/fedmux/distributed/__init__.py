"""The processes that train one run together, and the devices they use."""
