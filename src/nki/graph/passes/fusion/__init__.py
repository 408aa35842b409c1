"""Operations become groups, each of which one kernel computes."""
