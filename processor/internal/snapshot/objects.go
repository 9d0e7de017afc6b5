package snapshot

import (
	"bytes"
	"context"
	"strings"
	"sync"
)

// Objects is where snapshots are stored. Its methods are safe for concurrent use.
type Objects interface {
	// Put stores an object, in place of one that is there. If it fails there may be a part of it.
	Put(ctx context.Context, name string, data []byte) error
	// Get reads an object: nil if there is none.
	Get(ctx context.Context, name string) ([]byte, error)
	// Names are the names of all objects, and of those of which there is only a part.
	Names(ctx context.Context) ([]string, error)
	// Remove removes all objects whose names begin with some tokens and a dot.
	Remove(ctx context.Context, tokens string) error
}

// Memory are Objects in memory, for tests and simulations.
type Memory struct {
	mu      sync.Mutex
	objects map[string][]byte
}

// Put implements [Objects].
func (m *Memory) Put(_ context.Context, name string, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.objects == nil {
		m.objects = make(map[string][]byte)
	}
	m.objects[name] = bytes.Clone(data)
	return nil
}

// Get implements [Objects].
func (m *Memory) Get(_ context.Context, name string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return bytes.Clone(m.objects[name]), nil
}

// Names implements [Objects].
func (m *Memory) Names(context.Context) (names []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.objects {
		names = append(names, name)
	}
	return names, nil
}

// Remove implements [Objects].
func (m *Memory) Remove(_ context.Context, tokens string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.objects {
		if strings.HasPrefix(name, tokens+".") {
			delete(m.objects, name)
		}
	}
	return nil
}
