"""RabbitMQ: queues as sources, exchanges as sinks."""
