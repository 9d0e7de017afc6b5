package streams

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/wire"
)

// completeConfigs appends to the stream of configurations, which was a mirror and is closed, what the logs here have
// sourced of it and the mirror has not got: each mirror has its own link, and may be behind the others. The next
// configuration would get a sequence that the logs have already.
func (p *Promotion) completeConfigs(ctx context.Context, stream jetstream.Stream) error {
	info, err := stream.Info(ctx)
	if err != nil {
		return fmt.Errorf("look up stream %s: %w", p.Opts.root(), err)
	}
	missing, upTo, err := p.sourcedBehind(ctx, info.State.LastSeq)
	if err != nil || upTo == 0 {
		return err
	}
	have := info.State.LastSeq
	for seq := have + 1; seq <= upTo; seq++ {
		if missing[seq] == nil {
			return fmt.Errorf("stream %s ends at message %d, a log here has message %d of it, and none has message %d: promote another region, or restore a backup", p.Opts.root(), have, upTo, seq)
		}
	}
	c := info.Config
	closed := c.Subjects[0]
	c.Subjects = []string{closed, closed + ".>"}
	c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: closed + ".>", Destination: ">"}
	if _, err := p.JS.UpdateStream(ctx, c); err != nil {
		return fmt.Errorf("open stream %s for what the logs have sourced: %w", c.Name, err)
	}
	for seq := have + 1; seq <= upTo; seq++ {
		m := missing[seq]
		m.Subject = closed + "." + m.Subject
		m.Header.Set(jetstream.ExpectedLastSeqHeader, strconv.FormatUint(seq-1, 10))
		if _, err := p.JS.PublishMsg(ctx, m); err != nil {
			return fmt.Errorf("append message %d to stream %s, which a log has sourced: %w", seq, c.Name, err)
		}
	}
	return nil
}

// sourcedBehind is what the logs here have sourced of the stream of configurations behind a sequence, and the last
// sequence of that; 0 if they have nothing.
func (p *Promotion) sourcedBehind(ctx context.Context, have uint64) (all map[uint64]*nats.Msg, upTo uint64, err error) {
	all = make(map[uint64]*nats.Msg)
	o := p.Opts
	for o.Shard = range o.Shards {
		name := o.log().Stream()
		if last, err := sourcedUpTo(ctx, p.JS, o, name); err != nil {
			return nil, 0, err
		} else if last <= have {
			continue
		}
		for _, filter := range o.Prefix.ConfigSubjects() {
			for after := uint64(0); ; {
				m, err := events.GetMessage(ctx, p.JS.Conn(), name, map[string]any{"seq": after + 1, "next_by_subj": filter})
				if err != nil {
					return nil, 0, fmt.Errorf("read the configurations of stream %s: %w", name, err)
				}
				if m == nil {
					break
				}
				after = m.Seq
				if seq, copied := uncopied(m); seq > have {
					all[seq], upTo = copied, max(upTo, seq)
				}
			}
		}
	}
	return all, upTo, nil
}

// uncopied is the message of the stream of configurations that a log has sourced, and its sequence there.
func uncopied(m *events.Stored) (seq uint64, original *nats.Msg) {
	header, err := nats.DecodeHeadersMsg(m.Header)
	if err != nil {
		return 0, nil
	}
	original = &nats.Msg{Subject: m.Subject, Header: nats.Header{}, Data: m.Data}
	for name, values := range header {
		if name == jetstream.MsgIDHeader || !strings.HasPrefix(name, "Nats-") {
			original.Header[name] = values
		}
	}
	return wire.SourceSequence(header), original
}
