package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/backoff"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/wire"
)

// ErrFirstAnswers: the first region is there, so its writes of this moment would be lost.
var ErrFirstAnswers = errors.New("the first region answers")

const (
	reachTimes = 3 // questions without an answer make a silence
	reachAgain = 500 * time.Millisecond
)

// Facts reads what a promotion depends on. It changes nothing.
func (p *Promotion) Facts(ctx context.Context, role Role, drain, force bool) (*Facts, error) {
	o := p.Opts
	f := &Facts{Domain: p.Domain, Role: role, Drain: drain, Force: force, There: map[string]*jetstream.StreamInfo{}}
	if began := role.Promotion; began != nil {
		f.Role.Follows = began.From
	}
	var err error
	if f.Here, err = o.infos(ctx, p.JS); err != nil {
		return nil, err
	}
	f.There[o.root()], f.Reach = p.Origin.reach(ctx, o.root())
	if f.Reach == (Reach{}) {
		for _, name := range o.all() {
			info, err := p.Origin.Info(ctx, name)
			if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
				return nil, err
			}
			f.There[name] = info
		}
		if err := p.compareEnds(ctx, f); err != nil {
			return nil, err
		}
	}
	if err := p.mayChange(ctx, f); err != nil {
		return nil, err
	}
	for o.Shard = range o.Shards {
		if f.Mapping == nil {
			f.Mapping = CheckMapping(ctx, p.JS.Conn(), o.log())
		}
	}
	return f, nil
}

// infos are the streams of a prefix that are there, by their names.
func (o Options) infos(ctx context.Context, js jetstream.JetStream) (map[string]*jetstream.StreamInfo, error) {
	all := map[string]*jetstream.StreamInfo{}
	for _, name := range o.all() {
		stream, err := js.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look up stream %s: %w", name, err)
		}
		all[name] = stream.CachedInfo()
	}
	return all, nil
}

// reach asks the first region for a stream, several times if no answer comes. info is nil if the region has no such
// stream.
func (o *Origin) reach(ctx context.Context, name string) (info *jetstream.StreamInfo, r Reach) {
	for asked := 0; ; asked++ {
		asking, cancel := context.WithTimeout(ctx, AnswerTimeout)
		m, err := o.nc.RequestWithContext(asking, "$JS."+o.Domain+".API.STREAM.INFO."+name, nil)
		cancel()
		var answer struct {
			jetstream.StreamInfo
			Error *jetstream.APIError `json:"error"`
		}
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			r.Silent = true
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
			r.Late = true
			if denied := o.nc.LastError(); errors.Is(denied, nats.ErrPermissionViolation) {
				return nil, Reach{Err: denied}
			}
		case err != nil:
			return nil, Reach{Err: err}
		case json.Unmarshal(m.Data, &answer) != nil:
			return nil, Reach{Err: fmt.Errorf("the answer about stream %s cannot be read", name)}
		case answer.Error != nil && answer.Error.ErrorCode == jetstream.JSErrCodeStreamNotFound:
			return nil, Reach{}
		case answer.Error != nil:
			return nil, Reach{Err: answer.Error}
		default:
			return &answer.StreamInfo, Reach{}
		}
		if asked+1 >= reachTimes || !backoff.Wait(ctx, reachAgain) {
			return nil, r
		}
	}
}

// compareEnds compares the ends of the mirrors with what the first region has there.
func (p *Promotion) compareEnds(ctx context.Context, f *Facts) error {
	for name, here := range f.Here {
		there := f.There[name]
		if there == nil || here.Config.Mirror == nil || here.State.LastSeq == 0 {
			continue
		}
		last := here.State.LastSeq
		mine, err := events.GetMessage(ctx, p.JS.Conn(), name, map[string]any{"seq": last})
		if err != nil {
			return err
		}
		its, err := p.Origin.Get(ctx, name, map[string]any{"seq": last})
		switch {
		case err != nil:
			return err
		case mine == nil:
		case its == nil && there.State.LastSeq < last:
			f.Differ = append(f.Differ, fmt.Sprintf("the mirror %s ends at sequence %d, and the first region's at %d: it has lost its end", name, last, there.State.LastSeq))
		case its != nil && !its.Time.Equal(mine.Time):
			f.Differ = append(f.Differ, fmt.Sprintf("message %d of stream %s was stored at %s in the first region, and at %s here: they are not the same", last, name, nanoTime(its.Time.UnixNano()), nanoTime(mine.Time.UnixNano())))
		}
	}
	slices.Sort(f.Differ)
	return nil
}

// mayChange finds out whether the server allows to change each stream, and whether another stream listens where it is to
// listen.
func (p *Promotion) mayChange(ctx context.Context, f *Facts) error {
	wants, err := p.Opts.promoted(f)
	if err != nil {
		return nil // which the plan says
	}
	own := p.Opts.all()
	for _, want := range wants {
		info := f.Here[want.Name]
		if info == nil {
			continue
		}
		if _, err := p.JS.UpdateStream(ctx, info.Config); err != nil { // changes nothing
			f.Denied = append(f.Denied, fmt.Sprintf("stream %s cannot be changed: %v", want.Name, err))
		}
		for _, subject := range want.Subjects {
			names := p.JS.StreamNames(ctx, jetstream.WithStreamListSubject(subject))
			for name := range names.Name() {
				if !slices.Contains(own, name) {
					f.Overlap = append(f.Overlap, fmt.Sprintf("the stream %s here listens to %s, as %s has to: remove it, or change its subjects", name, subject, want.Name))
				}
			}
			if err := names.Err(); err != nil {
				return fmt.Errorf("ask for the streams that listen to %s: %w", subject, err)
			}
		}
	}
	return nil
}

// Undo ends a promotion that has not changed a stream here yet: the region follows the first one again, which goes on.
func (p *Promotion) Undo(ctx context.Context, role Role) error {
	here, err := p.Opts.infos(ctx, p.JS)
	if err != nil {
		return err
	}
	if changed := p.Opts.changed(here); changed != "" {
		return fmt.Errorf("the stream %s is the region's own by now, so the promotion cannot be undone: run lapse promote again to finish it", changed)
	}
	if role.Promotion.Drain {
		if _, err := p.Origin.Ask(ctx, p.Opts.Prefix, wire.RegionRequest{Reopen: role.Promotion}); err != nil {
			return fmt.Errorf("the first region was asked to hand over, and has to be told that it goes on: %w", err)
		}
	}
	_, err = p.mark(ctx, p.Opts.root(), func(r *wire.Region) { r.Promotion = nil })
	return err
}
