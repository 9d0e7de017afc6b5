package processor

import (
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/sink/store"
)

// sizes is how much the servers hold, as the monitor found it last; nil what it has not
// found.
type sizes struct {
	streams atomic.Pointer[[]*jetstream.StreamInfo]
	redis   atomic.Pointer[store.Memory]
}

var (
	streamMessages = prometheus.NewDesc("lapse_stream_messages", "Messages in a stream of lapse.", []string{"stream"}, nil)
	streamBytes    = prometheus.NewDesc("lapse_stream_bytes", "Size of a stream of lapse.", []string{"stream"}, nil)
	streamLimit    = prometheus.NewDesc("lapse_stream_limit_bytes", "Size at which a stream of lapse discards "+
		"messages: old ones, or refuses new ones. Absent if it has no limit.", []string{"stream", "discard"}, nil)
	redisMemory = prometheus.NewDesc("lapse_redis_memory_bytes", "Memory that Redis uses; of a cluster, the master "+
		"that has the smallest share left. Absent for the embedded Redis.", nil, nil)
	redisLimit = prometheus.NewDesc("lapse_redis_memory_limit_bytes", "Memory at which that Redis refuses writes "+
		"(maxmemory). Absent if it has no limit.", nil, nil)

	sizeDescs = []*prometheus.Desc{streamMessages, streamBytes, streamLimit, redisMemory, redisLimit}
)

func (s *sizes) collect(c chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	if streams := s.streams.Load(); streams != nil {
		for _, info := range *streams {
			name := info.Config.Name
			gauge(streamMessages, float64(info.State.Msgs), name)
			gauge(streamBytes, float64(info.State.Bytes), name)
			if limit := info.Config.MaxBytes; limit > 0 {
				discard := "old"
				if info.Config.Discard == jetstream.DiscardNew {
					discard = "new"
				}
				gauge(streamLimit, float64(limit), name, discard)
			}
		}
	}
	if memory := s.redis.Load(); memory != nil && memory.Used > 0 {
		gauge(redisMemory, float64(memory.Used))
		if memory.Limit > 0 {
			gauge(redisLimit, float64(memory.Limit))
		}
	}
}
