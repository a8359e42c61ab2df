"""Configuration under Kafka's names: groups, broker, consumers, workers, the processor, and where values come from."""
