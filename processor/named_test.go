package processor

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/processor/internal/shard"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestG12_AnOutputOfALostMessageIsHidden: the log has lost its end and was written again, while an owner did not
// hear of it. The stream of events has a rejection of a lost message, and behind it one of a message that is
// there. A takeover refuses; where both name what is there, it goes on.
//
// It goes red if only the last message of the log that an output names is compared.
func TestG12_AnOutputOfALostMessageIsHidden(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{true, false} {
		t.Run(strconv.FormatBool(lost), func(t *testing.T) {
			t.Parallel()
			r := newRigOn(t, backends[0], Options{})
			p := r.start(nil)
			p.ready(t)
			r.put("c", "x", `{}`)
			r.caughtUp(p)
			p.stop(t)
			for range 3 {
				r.sendAsync(prefix.Write("frob", "c", "x"), ``)
			}
			r.flush()
			log := r.readStream(prefix.LogStream(), r.logInfo().State.LastSeq-2)
			reject := func(m storedMessage, ts int64) {
				t.Helper()
				h := nats.Header{
					wire.HeaderCode: {"400"}, wire.HeaderError: {"unknown"}, wire.HeaderSubject: {m.subject},
					wire.HeaderStream: {prefix.LogStream()},
					wire.HeaderSeq:    {strconv.FormatUint(m.seq, 10)}, wire.HeaderTs: {wire.Time(ts).String()},
				}
				if _, err := r.js.PublishMsg(t.Context(), &nats.Msg{Subject: "lapse.rejected.c.x", Header: h},
					jetstream.WithExpectStream(prefix.EventsStream())); err != nil {
					t.Fatal(err)
				}
			}
			first := log[0].at.UnixMilli()
			if lost {
				first -= 1000
			}
			reject(log[0], first)
			reject(log[2], log[2].at.UnixMilli())
			p = r.start(nil)
			if lost {
				p.ends(t, ErrLogChanged)
				return
			}
			r.caughtUp(p)
			p.stop(t)
			if n := len(r.outputs()); n != 3 {
				t.Errorf("there are %d rejections", n)
			}
		})
	}
}

// TestG12_AnEventRemembersALostConfiguration: a configuration lets a document expire. Then the log loses it, Redis
// is empty, and the checkpoints are as they were before: only the event remembers it, and names an older
// message, the write. A takeover refuses, also if clients have written again. A person can begin anew.
//
// It goes red if a step does not name the message up to which the log was read for it.
func TestG12_AnEventRemembersALostConfiguration(t *testing.T) {
	t.Parallel()
	for written, want := range map[bool]error{false: ErrLogBehind, true: ErrLogChanged} {
		t.Run(want.Error(), func(t *testing.T) {
			t.Parallel()
			r := newLossRig(t, backends[0], "")
			p := r.start(nil)
			p.ready(t)
			r.put("c", "x", `{"ttl":1}`)
			r.all(p)
			p.stop(t)
			was := r.now()
			p = r.start(nil)
			p.ready(t)
			r.config("c", `{"defaultTtl":-1}`)
			eventually(t, "its event is published", func() bool { return len(r.outputs()) == 1 })
			r.all(p)
			p.stop(t)
			r.putBack(was, theLog, theCheckpoints)
			r.wipe()
			if written {
				for range 100 {
					r.sendAsync(prefix.Write(wire.Upsert, "c", "y"), `{}`)
				}
				r.flush()
			}
			p = r.start(nil)
			p.ends(t, want)
			r.beginAnew(r.accepts(p.err))
			p = r.start(func(here crash.Point) error {
				if here == crash.BeforeCheckpoint {
					return errFail
				}
				return nil
			})
			// It is not ready once it could store no checkpoint for some seconds.
			end := r.lastSeq()
			eventually(t, "the log is applied", func() bool { return p.current().status.Applied.Load() >= end })
			p.stop(t)
			p = r.start(nil)
			p.ready(t)
			r.reader = r.newReader() // the former one has seen more of the log than there is now
			if r.body("c", "x") != `{"ttl":1}` {
				t.Error("the shard was begun anew, and the document is not there")
			}
			p.stop(t)
		})
	}
}

// TestG12_AMessageThatWaitsIsNamed: the event of a due document follows from a drop that is not applied yet, as
// due documents come first. It names the drop all the same.
//
// It goes red if a step names a message of the offset, where a later one has moved the watermark.
func TestG12_AMessageThatWaitsIsNamed(t *testing.T) {
	t.Parallel()
	r := newRigOn(t, backends[0], Options{})
	p := r.start(nil)
	p.ready(t)
	p.stop(t)
	r.send(prefix.Config("c"), `{"defaultTtl":-1}`)
	r.send(prefix.Write(wire.Upsert, "c", "x"), `{"ttl":1}`)
	due := time.Now().Add(1100 * time.Millisecond)
	eventually(t, "it is due", func() bool { return time.Now().After(due) })
	drop := r.send(prefix.Drop("c"), ``)
	bounds := shard.DefaultBounds
	bounds.Epochs, bounds.Generations = fold.MaxEpochs, 0
	r.bounds = &bounds
	p = r.start(nil)
	eventually(t, "its event is published", func() bool { return len(r.outputs()) == 1 })
	p.stop(t)
	if offset := r.outputs()[0].header.Get(wire.HeaderOffset); !strings.HasPrefix(offset, fmt.Sprint(drop, ":")) {
		t.Errorf("the event names %q, and follows from message %d", offset, drop)
	}
}
