"""RabbitMQ exchanges and queues as sinks."""
