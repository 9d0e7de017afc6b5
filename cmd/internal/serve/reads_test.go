package serve

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/harness/natstest/inprocess"
	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/sink/wire"
)

// A process that started before there was a log takes the number of partitions from the log. It
// does not look for it in Redis, where partition 0 has it: that one's master may not answer.
func TestReaderTakesTheShapeFromTheLog(t *testing.T) {
	nc, err := nats.Connect(inprocess.Start(t, &server.Options{JetStream: true, StoreDir: t.TempDir()}).ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	nobody := redis.NewClient(&redis.Options{Addr: "127.0.0.1:9", MaxRetries: -1, DialerRetries: 1, DialTimeout: time.Second})
	t.Cleanup(func() { _ = nobody.Close() })
	p := &process{opts: Options{Processor: processor.Options{Prefix: "early"}}, reads: connections{nats: nc, redis: nobody}}
	reader, _, err := p.newReader(prometheus.NewRegistry(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Get(t.Context(), "c", "a"); err == nil || !strings.Contains(err.Error(), "there is no log with the prefix early yet") {
		t.Errorf("without a log: %v", err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: wire.Prefix("early").LogStream(), Metadata: map[string]string{wire.PartitionsKey: "3"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Get(t.Context(), "c", "a"); err == nil || !strings.Contains(err.Error(), "read partition ") {
		t.Errorf("with a log of 3 partitions, and no Redis: %v", err)
	}
}
