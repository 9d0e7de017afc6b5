package service

import (
	"sync"
	"time"

	"github.com/nats-io/nats.go/micro"
)

// stats counts the requests of an endpoint, and the time that each took from the moment at
// which the service began to answer it.
type stats struct {
	mu sync.Mutex
	micro.EndpointStats
}

// add counts a request.
func (s *stats) add(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.NumRequests++
	s.ProcessingTime += took
	s.AverageProcessingTime = s.ProcessingTime / time.Duration(s.NumRequests)
}

// fail counts a request as failed; add has counted it before.
func (s *stats) fail(f *failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.NumErrors++
	s.LastError = f.lastError()
}

func (s *stats) snapshot() micro.EndpointStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.EndpointStats
}
