"""MQTT: topics as sources and sinks."""
