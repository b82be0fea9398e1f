"""MQTT topics as sinks."""
