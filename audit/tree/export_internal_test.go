package tree

// Ahead is how many leaves are kept until a checkpoint signs them.
func (s *Stream) Ahead() int { return len(s.ahead) }
