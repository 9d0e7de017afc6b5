package simulation

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/simulation/observer"
	"github.com/seed18712806/lapse/integration/simulation/plan"
	"github.com/seed18712806/lapse/sink/wire"
)

// client sends what the plan says.
type client struct {
	sent int
	last *nats.Msg
}

// send lets a client send a message.
func (w *World) send(s plan.Step) {
	c := &w.client
	m := nats.NewMsg("")
	header := func(condition string, etag wire.Etag) {
		switch {
		case condition == "last" && etag != 0:
			m.Header.Set(wire.HeaderIfMatch, etag.String())
		case condition != "-" && condition != "last":
			m.Header.Set(wire.HeaderIfMatch, condition)
		}
	}
	switch s.Verb {
	case "write":
		m.Subject, m.Data = prefix.Write(wire.Op(s.Args[0]), s.Args[1], s.Args[2]), body(s.Args[4])
		more := strings.Split(s.Args[3], "+")
		header(more[0], w.present().observer.Etag(s.Args[1], s.Args[2]))
		at := func(after string) string {
			ms, _ := strconv.Atoi(after)
			return wire.Time(time.Now().UnixMilli() + int64(ms)).String()
		}
		for _, asked := range more[1:] {
			if after, ok := strings.CutPrefix(asked, "at"); ok {
				m.Header.Set(wire.HeaderExpiresAt, at(after))
			} else if after, ok := strings.CutPrefix(asked, "till"); ok {
				m.Header.Set(wire.HeaderNotAfter, at(after))
			} else if target, ok := strings.CutPrefix(asked, "to:"); ok {
				m.Header.Set(wire.HeaderTarget, target)
			} else {
				m.Header.Set(wire.HeaderClock, asked)
			}
		}
	case "config":
		m.Subject, m.Data = prefix.Config(s.Args[0]), []byte(s.Args[2])
		header(s.Args[1], w.present().observer.ConfigEtag(s.Args[0]))
	case "drop":
		m.Subject = prefix.Drop(s.Args[0])
		header(s.Args[1], w.present().observer.ConfigEtag(s.Args[0]))
	case "raw":
		m.Subject, m.Data = s.Args[0], []byte(s.Args[1])
	case "repeat":
		if c.last == nil {
			return
		}
		m = c.last
	}
	if s.Verb != "repeat" {
		c.sent++
		m.Header.Set(jetstream.MsgIDHeader, fmt.Sprintf("m%d", c.sent))
		m.Header.Set(wire.HeaderReplyTo, fmt.Sprintf("_INBOX.simulation.%d", c.sent))
		c.last = m
	}
	at := w.present()
	if at.nats.Stream(observer.Log) == nil {
		return
	}
	_, sent := at.nats.Append(m.Subject, m.Header, m.Data)
	at.observer.Look()
	w.deliverAt(at, sent)
}

// body is a body of the plan, where ~n~ stands for n bytes.
func body(text string) []byte {
	before, rest, _ := strings.Cut(text, "~")
	n, after, found := strings.Cut(rest, "~")
	if !found {
		return []byte(text)
	}
	size, _ := strconv.Atoi(n)
	return []byte(before + strings.Repeat("x", size) + after)
}
