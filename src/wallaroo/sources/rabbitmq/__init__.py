"""RabbitMQ queues as sources."""
