package service

import (
	"sync"
	"time"
)

// stats are what the requests of an endpoint took. They stand in the data of
// the micro service's own statistics.
type stats struct {
	mu        sync.Mutex
	requests  int64
	errors    int64
	took      time.Duration
	lastError string
}

type statsData struct {
	Requests       int64         `json:"num_requests"`
	Errors         int64         `json:"num_errors"`
	LastError      string        `json:"last_error,omitempty"`
	ProcessingTime time.Duration `json:"processing_time"`
	Average        time.Duration `json:"average_processing_time"`
}

func (s *stats) add(took time.Duration, failed *failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	s.took += took
	if failed != nil {
		s.errors++
		s.lastError = failed.text
	}
}

func (s *stats) snapshot() statsData {
	s.mu.Lock()
	defer s.mu.Unlock()
	return statsData{s.requests, s.errors, s.lastError, s.took, s.took / time.Duration(max(s.requests, 1))}
}
