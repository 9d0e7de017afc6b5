package client

import "github.com/seed18712806/lapse/sink/wire"

// Assign is assign, for tests of processes that are gone.
func (s *Status) Assign(leases map[int]wire.Lease) {
	if leases == nil {
		leases = make(map[int]wire.Lease)
	}
	s.assign(leases)
}
