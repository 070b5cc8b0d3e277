"""Problems that several tests share."""

# flow, theory: a diagonal linear network whose coordinate 0 enters with sign +1, leaves when coordinate 1 enters, and
# returns with sign -1; the teacher is the only minimum. Found by search over small integers.
RETURNING_FEATURES = ((3.0, -2.0, 0.0), (0.0, 0.0, 2.0), (-1.0, 1.0, 1.0))
RETURNING_TEACHER = (-1.0, -2.0, -2.0)
RETURNING_LAST_SADDLE = (0.0, -7 / 12, -25 / 12)  # where coordinate 0 must return; a flow that lost it ends here
