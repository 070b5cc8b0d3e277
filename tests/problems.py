"""Problems that several tests share."""
