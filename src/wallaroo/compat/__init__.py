"""The APIs and programs of Wallaroo, 2017 to 2019."""
