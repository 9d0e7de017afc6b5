// Package redismodel is a model of lapse's partitions in one Redis.
//
// A [Server] does what the scripts of sink/store do, in memory and at once. It is
// deterministic, and one scheduler calls it: it is not safe for concurrent use. The test
// holds it against real servers, from which it differs in these points:
//
//   - Clear, SetAside and RemoveAside are one step, not one for each thousand keys.
//   - Scan goes by id. Redis may use any order, and may return a document twice.
//   - Clock is the server's clock, for some seconds after a call of Due by any process. A
//     process that uses a real store estimates that clock.
//   - Commit does not take an id that equals a new score for a document that exists.
package redismodel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed18712806/lapse/sink/store"
)

// Options configure a Server.
type Options struct {
	Now        func() time.Time // the server's clock
	Partitions int
}

// Server is one master of Redis that holds all partitions.
type Server struct {
	now        func() time.Time
	partitions []*Partition
	full       bool
	run        int       // number of the server's process
	learned    time.Time // when Due was called last; zero if its answer is forgotten
}

// errFull is the answer of a Redis that is full to a command that may take memory.
var errFull = errors.New("OOM command not allowed when used memory > 'maxmemory'")

// New makes an empty server.
func New(opts Options) *Server {
	s := &Server{now: opts.Now, partitions: make([]*Partition, opts.Partitions)}
	for i := range s.partitions {
		s.partitions[i] = &Partition{server: s, id: i}
	}
	return s
}

// Partition is the i-th partition.
func (s *Server) Partition(i int) *Partition { return s.partitions[i] }

// Time is the server's clock.
func (s *Server) Time(context.Context) (time.Time, error) {
	return time.UnixMicro(s.now().UnixMicro()), nil
}

// Check accepts the server.
func (s *Server) Check(context.Context) error { return nil }

// Ping returns nil: the server answers.
func (s *Server) Ping(context.Context) error { return nil }

// Memory is the memory of all that is stored. A server that is full has reached its limit.
func (s *Server) Memory(context.Context) (m store.Memory, err error) {
	m.Used = 1 // 0 is for a server that does not tell
	for _, p := range s.partitions {
		m.Used += int64(p.Bytes())
	}
	if s.full {
		m.Limit = m.Used
	}
	return m, nil
}

// Snapshot is everything that a server held at a moment.
type Snapshot struct{ partitions, aside []contents }

// Save remembers what the server holds. It copies nothing: see list.
func (s *Server) Save() (held Snapshot) {
	for _, p := range s.partitions {
		held.partitions = append(held.partitions, p.share())
		held.aside = append(held.aside, p.aside.share())
	}
	return held
}

// Restore is a failover to a replica that has only what a snapshot holds. The replica is
// another process, to which the cursors of scans mean nothing.
func (s *Server) Restore(held Snapshot) {
	s.run++
	for i, p := range s.partitions {
		p.contents, p.aside = held.partitions[i], held.aside[i]
	}
}

// Flush removes everything.
func (s *Server) Flush() {
	for _, p := range s.partitions {
		p.contents, p.aside = contents{}, contents{}
	}
}

// Restart starts the server again with all that it holds, as another process.
func (s *Server) Restart() { s.run++ }

// Full sets whether the server is full: then it refuses what may take memory.
func (s *Server) Full(full bool) { s.full = full }

func (s *Server) name() string { return fmt.Sprintf("run%d", s.run) }
