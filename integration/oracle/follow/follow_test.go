package follow_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/oracle"
	"github.com/seed18712806/lapse/integration/oracle/follow"
	"github.com/seed18712806/lapse/sink/wire"
)

const prefix = wire.DefaultPrefix

// TestFindings: the follower finds an event that is missing, one that must not be there, and a
// message that was acknowledged and is another one in the log; and nothing in a log without faults.
func TestFindings(t *testing.T) {
	for name, tt := range map[string]struct {
		late  time.Duration
		event string // a ce-id
		acked string // the body of the second message
		found bool
	}{
		"none":           {late: time.Minute, acked: `{}`},
		"missing":        {late: 0, acked: `{}`, found: true},
		"not caused":     {late: time.Minute, event: "c/b/2", acked: `{}`, found: true},
		"another in log": {late: time.Minute, acked: `{"a":1}`, found: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc, err := nats.Connect(natstest.Start(t, natstest.Options{}), natstest.Patient)
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			js, err := jetstream.New(nc)
			if err != nil {
				t.Fatal(err)
			}
			log := prefix.Log(0, 1)
			for stream, subjects := range map[string][]string{
				log.Stream():          {"lapse.write.>", "lapse.config.>", log.Tick()},
				prefix.EventsStream(): {"lapse.expired.>"},
			} {
				if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: stream,
					Subjects: subjects}); err != nil {
					t.Fatal(err)
				}
			}
			publish := func(subject, body, id string) {
				msg := &nats.Msg{Subject: subject, Data: []byte(body), Header: nats.Header{}}
				if id != "" {
					msg.Header.Set("ce-id", id)
				}
				if _, err := js.PublishMsg(t.Context(), msg); err != nil {
					t.Fatal(err)
				}
			}
			publish(prefix.Config("c"), `{"defaultTtl":1}`, "")
			publish(prefix.Write(wire.Upsert, "c", "a"), `{}`, "")
			if tt.event != "" {
				publish("lapse.expired.c.b", `{}`, tt.event)
			}
			f, err := follow.New(t.Context(), js, oracle.Settings{Prefix: prefix}, tt.late)
			if err != nil {
				t.Fatal(err)
			}
			found := f.Acked(2, prefix.Write(wire.Upsert, "c", "a"), []byte(tt.acked))
			for limit := time.Now().Add(time.Minute); found == nil && time.Now().Before(limit); {
				publish(log.Tick(), "", "")
				found = f.Advance(t.Context())
				if outputs, documents := f.Open(); outputs > 0 && documents == 0 && !tt.found {
					break // it has expired, and the event may still come
				}
			}
			if errors.Is(found, follow.ErrFinding) != tt.found {
				t.Errorf("it found %v", found)
			}
		})
	}
}
