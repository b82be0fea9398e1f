"""MQTT topics as sources."""
