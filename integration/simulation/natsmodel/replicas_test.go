package natsmodel

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
)

// TestConformanceOnReplicas publishes the same fences, batches and single messages to a stream
// with three replicas on a real cluster and on the model. What is refused because something is
// in flight is sent again.
func TestConformanceOnReplicas(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("-seed %d", *seed)
	model := &served{model: New(Options{Now: time.Now, Replicas: 3}), conns: make(map[*Client]net.Conn)}
	sides := []*side{newSide(t, connect(t, "nats://"+natstest.StartCluster(t, 3)[0])),
		newSide(t, connect(t, "nats://model", nats.SetCustomDialer(model)))}
	sides[1].tick = model.tick
	c := config("EVENTS")
	c.Replicas = 3
	for _, s := range sides {
		natstest.CreateStream(t, s.js, c)
		// The server that answered may know of the stream before the one that we are connected to.
		first := []jetstream.PublishOpt{jetstream.WithRetryAttempts(1000),
			jetstream.WithRetryWait(10 * time.Millisecond)}
		if _, err := s.js.Publish(t.Context(), "events.a", nil, first...); err != nil {
			t.Fatal(err)
		}
	}
	fences := []string{"0"} // sequences
	random, inFlight, refused := rand.New(rand.NewPCG(*seed, 1)), [2]int{}, 0
	for i := range *count {
		number := random.Uint64()
		var got [2]string
		for j, s := range sides {
			for got[j] = ""; got[j] == "" || strings.Contains(got[j], "10164"); inFlight[j]++ {
				s.tick()
				s.r = rand.New(rand.NewPCG(number, 2))
				got[j] = text(s.fenced(i, fences))
			}
		}
		if diff := cmp.Diff(strings.Split(got[0], ","), strings.Split(got[1], ",")); diff != "" {
			t.Fatalf("operation %d: the cluster (-) and the model (+) differ:\n%s\n%s\n%s", i, diff, got[0], got[1])
		}
		if _, seq, ok := strings.Cut(got[0], `"fence",`); ok {
			seq, _, _ = strings.Cut(seq[strings.Index(seq, `"seq":`)+len(`"seq":`):], ",")
			fences = append(fences, strings.Trim(seq, "}]"))
		}
		if strings.Contains(got[0], "10071") {
			refused++
		}
	}
	t.Logf("%d fences; %d operations were refused for a newer one; the cluster refused %d for one in flight, the "+
		"model %d", len(fences)-1, refused, inFlight[0]-*count, inFlight[1]-*count)
	if refused == 0 {
		t.Error("no operation met a newer fence")
	}
}

// fenced publishes a fence, or a message or a batch behind one of the last two.
func (s *side) fenced(i int, fences []string) any {
	last := func(*nats.Msg) bool { return true }
	if s.chance(5) {
		s.send(nats.NewMsg("events.fence"), "fence")
		return append([]any{"fence"}, s.answers(last)...)
	}
	n := 1 + s.r.IntN(4)
	fence := fences[max(0, len(fences)-1-s.r.IntN(4)/3)]
	gap := s.chance(20)
	for j := range n {
		m := nats.NewMsg(s.pick("events.a", "events.b"))
		m.Header.Set("Nats-Msg-Id", s.pick(fmt.Sprint(i, j), fmt.Sprint(i, j), fmt.Sprint(i, j), s.number(50)))
		if j == 0 {
			m.Header.Set("Nats-Expected-Last-Subject-Sequence", fence)
			m.Header.Set("Nats-Expected-Last-Subject-Sequence-Subject", "events.fence")
		}
		if n > 1 {
			m.Header.Set("Nats-Batch-Id", fmt.Sprint("batch", i))
			m.Header.Set("Nats-Batch-Sequence", strconv.Itoa(1+j))
		}
		switch {
		case j == n-1 && n > 1:
			m.Header.Set("Nats-Batch-Commit", "1")
			fallthrough
		case n == 1:
			s.send(m, "publish")
		case gap && j == 1:
		default:
			if err := s.nc.PublishMsg(m); err != nil {
				panic(err)
			}
		}
	}
	return s.answers(last)
}
