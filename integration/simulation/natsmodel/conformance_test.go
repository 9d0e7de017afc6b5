package natsmodel

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/poll"
)

var (
	seed  = flag.Uint64("seed", 0, "seed of the operations; 0: a new one")
	count = flag.Int("operations", 200, "number of operations")
)

// TestConformance makes the same random operations on a real server and on the model.
func TestConformance(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("-seed %d", *seed)
	model := &served{model: New(Options{Now: time.Now}), conns: make(map[*Client]net.Conn)}
	store := t.TempDir()
	sides := []*side{newSide(t, connect(t, natstest.Start(t, natstest.Options{Store: store}))),
		newSide(t, connect(t, "nats://model", nats.SetCustomDialer(model)))}
	sides[0].removed = func() bool {
		gone, err := filepath.Glob(filepath.Join(store, "jetstream", "$G", "streams", ".*"))
		return err == nil && len(gone) == 0
	}
	sides[1].tick = model.tick
	random := rand.New(rand.NewPCG(*seed, 1))
	for i := range *count {
		number, operation := random.Uint64(), operations[random.IntN(len(operations))]
		switch i {
		case 0:
			operation = (*side).begin
		case *count - 1:
			operation = (*side).end
		}
		var got [2]string
		for j, s := range sides {
			s.r = rand.New(rand.NewPCG(number, 2))
			got[j] = text(operation(s))
		}
		if diff := cmp.Diff(strings.Split(got[0], ","), strings.Split(got[1], ",")); diff != "" {
			t.Fatalf("operation %d: the server (-) and the model (+) differ:\n%s\n%s\n%s", i, diff, got[0], got[1])
		}
		if testing.Verbose() {
			t.Logf("%d: %s", i, got[0])
		}
	}
}

// side is one of the two servers, and what was done there.
type side struct {
	nc    *nats.Conn
	js    jetstream.JetStream
	r     *rand.Rand
	inbox string // begins the subjects of all answers
	got   chan *nats.Msg
	tick  func()
	made  int // consumers and batches
	// removed reports whether the server has removed the files of the streams that were deleted.
	removed func() bool
}

func newSide(t *testing.T, nc *nats.Conn) *side {
	s := &side{nc: nc, inbox: nc.NewInbox() + ".", got: make(chan *nats.Msg, 1000), tick: func() {},
		removed: func() bool { return true }}
	var err error
	if s.js, err = jetstream.New(nc); err == nil {
		_, err = nc.ChanSubscribe(s.inbox+">", s.got)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// operations are what the test does at random. Each returns the answers.
var operations = slices.Concat(slices.Repeat([]func(*side) any{(*side).publish}, 6),
	slices.Repeat([]func(*side) any{(*side).atomic, (*side).fast, (*side).get}, 3),
	[]func(*side) any{(*side).purge, (*side).configure, (*side).consume, (*side).keyValue, (*side).keyValue,
		(*side).info})

var subjects = []string{"log.a", "events.a", "events.b", "events.b.c.d", "events.b.c.%C3%A4", "events.b.c.14"}

func (s *side) stream() string      { return s.pick("LOG", "EVENTS", "EVENTS", "EVENTS", "NONE") }
func (s *side) chance(n int) bool   { return s.r.IntN(n) == 0 }
func (s *side) number(n int) string { return strconv.Itoa(s.r.IntN(n)) }
func (s *side) info() any {
	return s.ask("STREAM.INFO."+s.stream(), map[string]any{"deleted_details": true})
}
func (s *side) pick(from ...string) string { return from[s.r.IntN(len(from))] }

// message is one that a stream may store, or refuse. Conditions are met if they are easy.
func (s *side) message(easy bool, last uint64) *nats.Msg {
	m := nats.NewMsg(s.pick(subjects...))
	m.Data = make([]byte, s.r.IntN(3)*s.r.IntN(100))
	if easy {
		m.Subject = s.pick(subjects[1:]...)
	}
	if s.chance(2) {
		m.Header.Set("Nats-Msg-Id", s.number(6+1000*s.r.IntN(2)))
	}
	if s.chance(3) {
		m.Header.Set("Nats-Expected-Stream", "EVENTS")
	}
	switch kind := s.r.IntN(12); {
	case kind == 0 && !easy:
		m.Header.Set("Nats-Expected-Last-Sequence", strconv.FormatUint(last-uint64(s.r.IntN(2)), 10))
	case kind <= 2:
		m.Header.Set("Nats-Expected-Last-Subject-Sequence", s.pick("0", s.number(int(last)+1)))
		m.Header.Set("Nats-Expected-Last-Subject-Sequence-Subject", s.pick("events.none", "events.none", "events.a"))
	case kind == 3 && !easy:
		m.Header.Set("Nats-Expected-Last-Subject-Sequence", strconv.FormatUint(last, 10))
	case kind == 4:
		m.Header.Set("Status", "100")
	}
	return m
}

func (s *side) last(stream string) uint64 {
	st, err := s.js.Stream(context.Background(), stream)
	if err != nil {
		return 0
	}
	return st.CachedInfo().State.LastSeq
}

// send sends a message, whose answer goes to the inbox.
func (s *side) send(m *nats.Msg, reply string) {
	m.Reply = s.inbox + reply
	if err := s.nc.PublishMsg(m); err != nil {
		panic(err)
	}
}

// answers returns the messages that come to the inbox, up to the last.
func (s *side) answers(last func(*nats.Msg) bool) (all []any) {
	for limit := time.Now().Add(time.Minute); time.Now().Before(limit); {
		select {
		case m := <-s.got:
			if over := last(m); over || !beats(m) {
				all = append(all, s.plain(m))
				if over {
					return all
				}
			}
		case <-time.After(5 * time.Millisecond):
			s.tick()
		}
	}
	return append(all, "no further answer")
}

func beats(m *nats.Msg) bool { return m.Header.Get("Description") == "Idle Heartbeat" }

func (s *side) ask(subject string, body any) any {
	m := nats.NewMsg("$JS.API." + subject)
	if body != nil {
		m.Data = []byte(text(body))
	}
	s.send(m, "ask")
	return s.answers(func(*nats.Msg) bool { return true })
}

// plain is a message without what differs between servers: names and stamps.
func (s *side) plain(m *nats.Msg) any {
	h := m.Header
	delete(h, "Nats-Time-Stamp")
	reply := strings.Split(m.Reply, ".")
	if len(reply) == 9 {
		reply[7] = "stamp"
	}
	var body any
	if json.Unmarshal(m.Data, &body) != nil {
		body = m.Data
	}
	return []any{strings.TrimPrefix(m.Subject, s.inbox), strings.Join(reply, "."), h, strip(body)}
}

// strip removes stamps, zero values, and what the server tells of itself.
func strip(v any) any {
	o, _ := v.(map[string]any)
	for k, one := range o {
		switch one := strip(one); {
		case slices.Contains([]string{"ts", "created", "time", "first_ts", "last_ts", "did_create", "cluster", "limit",
			"last_active"}, k), strings.HasPrefix(k, "_nats."):
			delete(o, k)
		case slices.Contains([]string{"false", "0", `""`, "{}", "null"}, text(one)):
			delete(o, k)
		case k == "hdrs":
			raw, _ := json.Marshal(one)
			var b []byte
			_ = json.Unmarshal(raw, &b)
			o[k], _ = nats.DecodeHeadersMsg(b)
		}
	}
	return v
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func config(name string) jetstream.StreamConfig {
	c := jetstream.StreamConfig{Name: name, Metadata: map[string]string{"key": "value"},
		Subjects: []string{strings.ToLower(name) + ".>"}, AllowDirect: true, AllowAtomicPublish: name == "EVENTS",
		AllowBatchPublish: name == "EVENTS"}
	if name == "EVENTS" {
		c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: "events.*.*.*",
			Destination: "events.{{wildcard(1)}}.{{wildcard(2)}}.{{partition(16,3)}}"}
	}
	return c
}

func (s *side) begin() any {
	return []any{s.ask("STREAM.CREATE.LOG", config("LOG")), s.ask("STREAM.CREATE.EVENTS", config("EVENTS"))}
}

func (s *side) publish() any {
	m := s.message(false, s.last("EVENTS"))
	if s.chance(15) {
		m.Subject = "nobody." + m.Subject
	}
	s.send(m, "publish")
	return s.answers(func(*nats.Msg) bool { return true })
}

// batchAnswers returns the answers to a batch, without reports of progress. A message that the
// stream refuses is answered behind them.
func (s *side) batchAnswers() any {
	m := nats.NewMsg("events.barrier")
	m.Header.Set("Nats-Expected-Last-Sequence", "9007199254740991")
	s.send(m, "barrier")
	all := s.answers(func(m *nats.Msg) bool { return strings.HasSuffix(m.Subject, "barrier") })
	return slices.DeleteFunc(all, func(a any) bool { return strings.Contains(text(a), `"type":"ack"`) })
}

func (s *side) atomic() any {
	s.made++
	n, last := 1+s.r.IntN(4), s.last("EVENTS")
	for i := range n {
		m := s.message(true, last)
		m.Header.Set("Nats-Batch-Id", fmt.Sprint("batch", s.made))
		m.Header.Set("Nats-Batch-Sequence", strconv.Itoa(1+i+min(i, s.r.IntN(20)/19)))
		if i == n-1 && !s.chance(20) {
			m.Header.Set("Nats-Batch-Commit", "1")
		}
		s.send(m, "atomic."+strconv.Itoa(i))
	}
	return s.batchAnswers()
}

func (s *side) fast() any {
	s.made++
	n, last := 1+s.r.IntN(6), s.last("EVENTS")
	for i := range n {
		operation := min(i, 1)
		if i == n-1 && !s.chance(20) {
			operation = 2
		}
		s.send(s.message(true, last), fmt.Sprintf("fast%d.1000.fail.%d.%d.$FI", s.made, 1+i+min(i, s.r.IntN(20)/19),
			operation))
	}
	return s.batchAnswers()
}

func (s *side) get() any {
	name, seq, subject := s.stream(), 1+s.r.IntN(60), s.pick(append(subjects, "none")...)
	switch s.r.IntN(6) {
	case 0:
		return s.ask("STREAM.MSG.GET."+name, map[string]any{"seq": seq})
	case 1:
		return s.ask("STREAM.MSG.GET."+name, map[string]any{"last_by_subj": subject})
	case 2:
		return s.ask("DIRECT.GET."+name+"."+subject, nil)
	case 3:
		return s.ask("STREAM.MSG.GET."+name, map[string]any{"seq": seq, "next_by_subj": ">"})
	}
	m := nats.NewMsg("$JS.API.DIRECT.GET." + name)
	m.Data = []byte(text(map[string]any{"seq": s.r.IntN(60), "batch": 1 + s.r.IntN(20),
		"max_bytes": 1 + s.r.IntN(1000)}))
	s.send(m, "batch")
	return s.answers(func(m *nats.Msg) bool { return m.Header.Get("Nats-Sequence") == "" })
}

func (s *side) purge() any {
	name, body := s.stream(), map[string]any{"filter": s.pick(append(subjects, "events.*", "events.b.c.*", ">")...)}
	if last := s.last(name); s.chance(2) || last == 0 {
		body = map[string]any{"seq": 1 + s.r.Uint64N(last+1)}
	}
	return s.ask("STREAM.PURGE."+name, body)
}

// configure creates or updates a stream, or deletes it and creates it anew.
func (s *side) configure() any {
	c := config(s.pick("LOG", "EVENTS"))
	c.MaxMsgs, c.MaxBytes = int64(s.r.IntN(2)*(1+s.r.IntN(15))), int64(s.r.IntN(2)*(500+s.r.IntN(2000)))
	c.MaxMsgSize, c.Discard = int32(s.r.IntN(2)*(100+s.r.IntN(300))), jetstream.DiscardPolicy(s.r.IntN(2))
	switch s.r.IntN(6) {
	case 0:
		c.MaxMsgsPerSubject, c.Discard = 1+int64(s.r.IntN(3)), jetstream.DiscardOld
		return s.anew(c)
	case 1:
		c.Duplicates, c.MaxAge = time.Hour, 10*time.Minute
	case 2:
		c.Replicas = 3
	case 3:
		c.AllowAtomicPublish, c.AllowBatchPublish = false, false
	case 4:
		c = config(c.Name)
		c.MaxMsgs, c.MaxBytes, c.Discard = int64(s.r.IntN(6)), int64(s.r.IntN(2)*700),
			jetstream.DiscardPolicy(s.r.IntN(2))
		return s.anew(c)
	}
	return []any{s.ask("STREAM."+s.pick("CREATE", "UPDATE", "UPDATE")+"."+c.Name, c), s.ask("STREAM.INFO."+c.Name, nil)}
}

// anew deletes a stream, and creates it again. The server removes the files a moment later: a
// stream of the same name that is deleted before would come back with its messages.
func (s *side) anew(c jetstream.StreamConfig) any {
	until(s.removed)
	return []any{s.ask("STREAM.DELETE."+c.Name, nil), s.ask("STREAM.CREATE."+c.Name, c)}
}

func (s *side) newConsumer(name string, start uint64, threshold time.Duration) (consumer string, answer any) {
	s.made++
	consumer = name + ".c" + strconv.Itoa(s.made)
	return consumer, s.ask("CONSUMER.CREATE."+consumer, map[string]any{"stream_name": name,
		"config": jetstream.ConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: start,
			AckPolicy: jetstream.AckNonePolicy, InactiveThreshold: threshold, MemoryStorage: true, Replicas: 1,
		}})
}

func (s *side) pull(consumer string, batch, bytes int, expires, beat time.Duration) {
	m := nats.NewMsg("$JS.API.CONSUMER.MSG.NEXT." + consumer)
	m.Data = []byte(text(map[string]any{"batch": batch, "max_bytes": bytes, "expires": expires,
		"idle_heartbeat": beat}))
	s.send(m, "pull")
}

// until waits for a condition.
func until(ok func() bool) {
	if err := poll.Met(time.Minute, "the server does what was asked", ok); err != nil {
		panic(err)
	}
}

// consumer is a number in the state of a consumer, 0 if there is none.
func (s *side) consumer(name, number string) int {
	var answer [][]json.RawMessage
	var info map[string]any
	_ = json.Unmarshal([]byte(text(s.ask("CONSUMER.INFO."+name, nil))), &answer)
	_ = json.Unmarshal(answer[0][3], &info)
	n, _ := info[number].(float64)
	return int(n)
}

// consume reads a stream with a new consumer. A request that gets no message expires soon. One
// that gets some is for no more than there are, so that it does not expire on a busy machine.
func (s *side) consume() any {
	consumer, answer := s.newConsumer(s.stream(), 1+s.r.Uint64N(60), time.Minute)
	all := []any{answer}
	for range s.r.IntN(4) {
		batch, bytes := 1+s.r.IntN(4), s.r.IntN(2)*(200+s.r.IntN(600))
		expires := 30 * time.Millisecond
		if pending := s.consumer(consumer, "num_pending"); pending > 0 {
			batch, expires = min(batch, pending), time.Minute
		}
		s.pull(consumer, batch, bytes, expires, 0)
		all = append(all, s.answers(func(m *nats.Msg) bool {
			if m.Reply != "" {
				batch--
			}
			return m.Reply == "" || batch == 0 && bytes == 0
		}))
	}
	return append(all, s.ask("CONSUMER.INFO."+consumer, nil), s.ask("CONSUMER.DELETE."+consumer, nil),
		s.ask("CONSUMER.DELETE."+consumer, nil))
}

// keyValue does something with a bucket.
func (s *side) keyValue() any {
	ctx := context.Background()
	kv, err := s.js.KeyValue(ctx, "B")
	if err != nil {
		kv, err = s.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "B"})
	}
	if err != nil {
		return err.Error()
	}
	key, seq := s.pick("k", "l"), uint64(0)
	switch s.r.IntN(4) {
	case 0:
		seq, err = kv.Create(ctx, key, []byte("created"))
	case 1:
		err = kv.Delete(ctx, key)
	default:
		var e jetstream.KeyValueEntry
		if e, err = kv.Get(ctx, key); err == nil {
			seq, err = kv.Update(ctx, key, append(e.Value(), 'u'), e.Revision()-uint64(s.r.IntN(2)))
		}
	}
	return []any{seq, fmt.Sprint(err), s.ask("STREAM.INFO.KV_B", nil),
		s.ask("STREAM.MSG.GET.KV_B", map[string]any{"last_by_subj": "$KV.B." + key})}
}

// end does once what takes long: requests that wait in turns, a consumer that nobody uses, and
// messages that are too old.
func (s *side) end() any {
	c := config("LOG")
	s.anew(c)
	idle, _ := s.newConsumer("LOG", 1, 100*time.Millisecond)
	busy, _ := s.newConsumer("LOG", 1, time.Minute)
	s.pull(busy, 2, 1000, time.Minute, 0)
	s.pull(busy, 2, 900, time.Minute, 0)
	until(func() bool { return s.consumer(busy, "num_waiting") == 2 })
	gather := func(n int) any {
		all := s.answers(func(m *nats.Msg) bool {
			if !beats(m) {
				n--
			}
			return n == 0
		})
		slices.SortFunc(all, func(a, b any) int { return strings.Compare(text(a), text(b)) })
		return all
	}
	var all []any
	for _, n := range []int{1, 1, 2} { // the third message completes a batch
		_ = s.nc.Publish("log.x", make([]byte, 10*len(all)))
		all = append(all, gather(n))
	}
	s.pull(busy, 1, 0, time.Minute, 100*time.Millisecond)
	all = append(all, s.answers(beats))
	s.send(nats.NewMsg("$JS.API.CONSUMER.DELETE."+busy), "ask")
	all = append(all, gather(3))
	last := s.last("LOG")
	part, _ := s.newConsumer("LOG", last, time.Minute)
	s.pull(part, 2, 0, time.Second, 0) // there is one message
	all = append(all, gather(2), s.ask("CONSUMER.DELETE."+part, nil))
	c.MaxAge, c.Duplicates = 100*time.Millisecond, 100*time.Millisecond
	s.ask("STREAM.UPDATE.LOG", c)
	until(func() bool {
		s.tick()
		left := text(s.ask("STREAM.INFO.LOG", nil))
		return !strings.Contains(left, `"messages"`) && !strings.Contains(left, `"consumer_count"`)
	})
	s.pull(idle, 1, 0, time.Second, 0)
	return append(all, gather(1), s.ask("STREAM.INFO.LOG", nil))
}
