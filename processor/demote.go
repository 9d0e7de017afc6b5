package processor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/wire"
)

// Unmirrored is a message that a region had acknowledged, and that the region which is the first now has not.
type Unmirrored struct {
	Stream  string      `json:"stream"`
	Seq     uint64      `json:"seq"`
	Time    time.Time   `json:"time"`
	Subject string      `json:"subject"`
	Header  nats.Header `json:"header,omitempty"`
	Body    string      `json:"body,omitempty"`
	Bytes   []byte      `json:"bytes,omitempty"` // in base64, of a body that is no UTF-8
}

// ErrAlone: the region has messages that the first region has not, and nobody has said where to save them.
var ErrAlone = errors.New("this region alone has writes")

// Demote makes the region of a connection ready to follow the region that is the first now: its streams are
// removed. It was the first before, and was superseded; or it follows another region, and first is the JetStream
// domain of the new one. Its processes must not run.
//
// What only this region has is written to save before, one JSON object (Unmirrored) on each line; with a nil save that
// is an ErrAlone, and nothing is removed. n is how many there are.
func Demote(ctx context.Context, nc *nats.Conn, prefix wire.Prefix, first string,
	save func() (io.WriteCloser, error)) (n int, err error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return 0, err
	}
	shards, err := streams.Shards(ctx, js, prefix)
	if err != nil {
		return 0, err
	}
	opts := streams.Options{Prefix: prefix, Shards: shards, Objects: true, MaxPayload: nc.MaxPayload(),
		Logger: slog.New(slog.DiscardHandler)}
	role, err := streams.RoleOf(ctx, js, opts)
	if err != nil && !errors.Is(err, streams.ErrSuperseded) {
		return 0, err
	}
	switch {
	case !role.Exists:
		return 0, fmt.Errorf("there is no log of the prefix %q", prefix)
	case role.Superseded != nil && first == "":
		first = role.Superseded.Domain
	case role.Superseded == nil && !role.Mirror:
		return 0, errors.New("this region is the first, and no other was promoted: nothing is removed")
	case first == "":
		return 0, fmt.Errorf("this region follows the one in the JetStream domain %q: name the region that is the first "+
			"now (--first), "+
			"which has to have what this one has", role.Follows)
	}
	origin, err := streams.NewOrigin(nc, first)
	if err != nil {
		return 0, err
	}
	demotion := &streams.Demotion{JS: js, First: origin, Opts: opts}
	if n, err = saveAlone(ctx, demotion, save); err != nil {
		return n, err
	}
	if err := demotion.Claim(ctx, role); err != nil {
		return n, err
	}
	return n, demotion.Remove(ctx)
}

// saveAlone writes what only the region here has.
func saveAlone(ctx context.Context, d *streams.Demotion, save func() (io.WriteCloser, error)) (n int, err error) {
	var out io.WriteCloser
	err = d.Alone(ctx, func(stream string, m jetstream.Msg) error {
		n++
		if save == nil {
			return nil
		}
		if out == nil {
			if out, err = save(); err != nil {
				return err
			}
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		one := Unmirrored{Stream: stream, Seq: meta.Sequence.Stream, Time: meta.Timestamp, Subject: m.Subject(),
			Header: m.Headers(), Body: string(m.Data())}
		if !utf8.Valid(m.Data()) {
			one.Body, one.Bytes = "", m.Data()
		}
		line, err := json.Marshal(one)
		if err == nil {
			_, err = out.Write(append(line, '\n'))
		}
		return err
	})
	if out != nil {
		err = errors.Join(err, out.Close())
	}
	if err == nil && save == nil && n > 0 {
		err = fmt.Errorf("%w: %d messages of its log, which it had acknowledged, are not in the region that is the first "+
			"now: name a file for them (--save)", ErrAlone, n)
	}
	return n, err
}
