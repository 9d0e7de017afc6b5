package integration

import (
	"bytes"
	"crypto/sha1"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestG1_KilledAgainAndAgain: lapse is killed again and again under load, and applies each write once. A create that
// was applied twice would be rejected the second time; one that was left out would be missing.
//
// It fails if the offset is committed apart from the effects, or before them; if outputs
// are published after the commit; if lapse assumes that a former owner has published them.
func TestG1_KilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	w := external(t, harness.RedisOptions{})
	l := startLoad(t, w.Client, 1)
	for range 6 {
		l.wait(t, 300)
		w.lapse.Kill()
		l.wait(t, 30)
		w.lapse.Start()
	}
	l.end()
	w.verify()
	l.verifyStored(t)
}

// TestG1_TwoProcessesAtOnce: two processors both act as the owner of the shard. The fence lets only one of two commits
// through.
//
// It fails if no script compares the version (a test beside the processor shows that the
// commit must); if the fenced processor does not read the state again; if the ids of
// outputs do not follow from the log.
func TestG1_TwoProcessesAtOnce(t *testing.T) {
	t.Parallel()
	w := servers(t, harness.RedisOptions{})
	w.startProcessor()
	l := startLoad(t, w.Client, 2)
	for range 4 {
		other := harness.LaunchProcessor(t, w.nats.URL(), w.redis.Address(), w.opts)
		l.wait(t, 500) // while they take the shard from each other
		w.stopProcessor()
		w.proc = other
	}
	l.end()
	w.proc.WaitReady()
	w.verify()
	l.verifyStored(t)
}

// TestG1_WakesUpStale: a process stands still under load while another takes its shard over. It then continues with old
// state, and changes nothing.
//
// It fails if the commit is not fenced; if the events stream is not, so that it stores the
// events that the process had already sent.
func TestG1_WakesUpStale(t *testing.T) {
	t.Parallel()
	w := external(t, harness.RedisOptions{})
	l := startLoad(t, w.Client, 3)
	for range 3 {
		l.wait(t, 300)
		w.lapse.Stop()
		other := harness.StartProcessor(t, w.nats.URL(), w.redis.Address(), w.opts)
		l.wait(t, 300)
		w.lapse.Continue()
		l.wait(t, 100)
		if err := other.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	l.end()
	w.lapse.Ready()
	w.verify()
}

// TestG1_AnswerOfACommitIsLost: the reply to a commit is lost. The commit took effect, and takes effect only once.
//
// It fails if the processor keeps messages that the state already covers after a takeover;
// if the client repeats a script after a network error and nothing stops the second run.
func TestG1_AnswerOfACommitIsLost(t *testing.T) {
	t.Parallel()
	w := servers(t, harness.RedisOptions{})
	proxy := harness.NewProxy(t, w.redis.Address())
	w.lapse = harness.StartLapse(t, w.nats.URL(), proxy.Address(), "--duplicate-window", duplicateWindow.String())
	source, err := os.ReadFile("../sink/store/commit.lua")
	if err != nil {
		t.Fatal(err)
	}
	commit := fmt.Appendf(nil, "%x", sha1.Sum(source)) // the name that EVALSHA sends
	l := startLoad(t, w.Client, 4)
	for i := range 30 {
		sprung := proxy.CutReply(func(request []byte) bool { return bytes.Contains(request, commit) }, i%4)
		l.wait(t, 30)
		select {
		case <-sprung:
		case <-time.After(harness.Limit):
			t.Fatal("there was no commit")
		}
	}
	l.end()
	w.verify()
}

// TestG1_OutcomesFollowTheLog: each operation has the outcome of the contract, in the order of the log: it is decided
// on the state that the operation before it has left.
//
// It fails if messages of one batch do not see each other's effects; if they are decided
// in another order than the log's.
func TestG1_OutcomesFollowTheLog(t *testing.T) {
	t.Parallel()
	w := inProcess(t)
	v1 := w.Want(201, wire.Create, "c", "a/ü", `{"id":"a/ü","n":1}`)
	w.Want(409, wire.Create, "c", "a/ü", `{}`)
	w.Want(412, wire.Upsert, "c", "a/ü", `{}`, wire.HeaderIfMatch, "99999")
	v2 := w.Want(200, wire.Patch, "c", "a/ü", `{"n":null,"m":{"x":1,"y":null}}`, wire.HeaderIfMatch, v1.Etag.String())
	w.Want(412, wire.Delete, "c", "a/ü", ``, wire.HeaderIfMatch, v1.Etag.String())
	v3 := w.Want(200, wire.Touch, "c", "a/ü", ``, wire.HeaderIfMatch, "*")
	if v3.Etag <= v2.Etag || v3.Ts < v2.Ts {
		t.Errorf("touch: %+v after %+v", v3, v2)
	}
	d := w.settled("c", "a/ü", uint64(v3.Etag))
	if string(d.Body) != `{"id":"a/ü","m":{"x":1}}` {
		t.Errorf("body %s", d.Body)
	}
	w.Want(204, wire.Delete, "c", "a/ü", ``, wire.HeaderIfMatch, v3.Etag.String())
	for _, op := range []wire.Op{wire.Replace, wire.Patch, wire.Touch, wire.Delete} {
		body := map[bool]string{true: `{}`}[op.HasBody()]
		w.Want(404, op, "c", "a/ü", body)
	}
	// None waits for the outcome of another, so that many are in one batch.
	for i := range 250 {
		op := []wire.Op{wire.Create, wire.Create, wire.Delete, wire.Upsert, wire.Delete}[i%5]
		w.SendLater(w.Prefix.Write(op, "c", "b"), map[bool]string{true: `{}`}[op.HasBody()])
	}
	last := w.Write(wire.Upsert, "c", "b", `{"last":true}`)
	w.settled("c", "b", last)
	w.verify()
}

// TestG1_FastBatch: writes in a fast batch are applied like other writes, each once and in their order, though lapse is
// killed meanwhile. Bad writes among them are rejected.
//
// It fails if the log does not allow fast batches; if lapse handles a message of a batch
// in another way than a single message.
func TestG1_FastBatch(t *testing.T) {
	t.Parallel()
	const n = 7 * 430
	w := external(t, harness.RedisOptions{})
	w.Configure("c", `{"defaultTtl":2}`)
	var failed atomic.Pointer[error]
	batch, err := jetstreamext.NewFastPublisher(w.JS,
		jetstreamext.FastPublishFlowControl{Flow: 100, MaxOutstandingAcks: 2, AckTimeout: harness.Limit},
		jetstreamext.WithFastPublisherErrorHandler(func(err error) { failed.Store(&err) }))
	if err != nil {
		t.Fatal(err)
	}
	inbox := w.NC.NewInbox()
	outcomes, err := w.NC.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		op := []wire.Op{wire.Create, wire.Upsert, wire.Patch, "frob", wire.Create, wire.Delete, wire.Upsert}[i%7]
		m := nats.NewMsg(w.Prefix.Write(op, "c", fmt.Sprint("a.", i/7%100)))
		if op.HasBody() {
			m.Data = fmt.Appendf(nil, `{"n":%d}`, i)
		}
		if i == n-1 {
			m.Header.Set(wire.HeaderReplyTo, inbox)
		}
		if _, err := batch.AddMsg(m); err != nil {
			t.Fatal(err)
		}
		switch i {
		case n / 3:
			w.lapse.Kill()
		case 2 * n / 3:
			w.lapse.Launch() // the server drops a batch that pauses until lapse is ready
		}
	}
	ack, err := batch.Close(t.Context())
	if err := failed.Load(); err != nil {
		t.Fatal(*err)
	}
	if err != nil || ack.BatchSize != n {
		t.Fatalf("%+v, %v: want %d messages", ack, err, n)
	}
	w.lapse.Ready()
	reply, err := outcomes.NextMsg(harness.Limit)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"status":201`; !bytes.HasPrefix(reply.Data, []byte(want)) {
		t.Errorf("the last outcome is %s, want %s", reply.Data, want)
	}
	after(t, now()+2000) // all documents expire
	if r := w.verify(); r.Model.Seq() < n || len(r.Model.Rejections) == 0 || len(r.Events) <= len(r.Model.Rejections) {
		t.Errorf("%d messages, %d rejections, %d events: the log does not have the batch", r.Model.Seq(),
			len(r.Model.Rejections), len(r.Events))
	}
}
