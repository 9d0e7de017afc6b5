package retention

import "github.com/prometheus/client_golang/prometheus"

// Metrics count what the keepers of a process do.
type Metrics struct {
	Taken, Failures, Bytes prometheus.Counter
	Seconds                prometheus.Observer
}
