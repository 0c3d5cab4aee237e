package executor

import "sync"

// shared is a value that several workers read and change. Safe for concurrent use.
type shared[T any] struct {
	mu sync.Mutex
	is T
}

// now returns the value.
func (s *shared[T]) now() T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.is
}

func (s *shared[T]) change(f func(is *T)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.is)
}
