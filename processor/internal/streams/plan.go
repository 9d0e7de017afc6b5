package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/backoff"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/wire"
)

// Facts are what a promotion depends on. They are read before anything is changed.
type Facts struct {
	Domain string // JetStream domain of the region here
	Role   Role   // of that region
	Drain  bool   // the first region is to hand over
	Force  bool   // what a person can override is overridden

	Here    map[string]*jetstream.StreamInfo // the streams here, by their names
	There   map[string]*jetstream.StreamInfo // those of the first region
	Differ  []string                         // mirrors that do not have what the first region has at the same sequence
	Denied  []string                         // changes of streams here that the server does not allow
	Overlap []string                         // other streams here that would get messages of lapse
	Mapping error                            // why writes do not come to their shards
	Reach   Reach                            // whether the first region answers
	Seen    *Seen                            // what the processes here say; nil if nobody has asked
}

// Reach is what was found out about a region by asking it several times.
type Reach struct {
	Silent bool  // there is nobody who could answer
	Late   bool  // no answer came, and why is not known
	Err    error // another error than that
}

// Seen is what the processes of a region say.
type Seen struct {
	Running   bool            // there are processes
	Problems  []string        // why they are not ready
	Stopped   []string        // why those are not that have stopped because a promotion has begun
	Following *wire.Following // how far the region is behind; nil if nobody has said it
}

// Step is a step of a promotion. Each may be repeated.
type Step struct {
	Do   string `json:"do"`
	Done bool   `json:"done,omitempty"`
}

// Plan is what a promotion does, or why it is refused.
type Plan struct {
	Steps     []Step   `json:"steps"`
	Refused   []string `json:"refused,omitempty"`
	Overrides []string `json:"overrides,omitempty"` // what --force overrides

	answers bool // the first region answers, which is among what can be overridden
}

// PlanPromotion plans a promotion of a region with some options. It changes nothing, and asks nobody.
func PlanPromotion(f *Facts, o Options) (p Plan) {
	refuse := func(format string, args ...any) { p.Refused = append(p.Refused, fmt.Sprintf(format, args...)) }
	unless := func(format string, args ...any) { // a person overrides it
		text := fmt.Sprintf(format, args...)
		if f.Force {
			p.Overrides = append(p.Overrides, text)
		} else {
			refuse("%s (--force overrides this)", text)
		}
	}
	switch r := f.Role; {
	case !r.Exists:
		refuse("there is nothing to promote: no log of the prefix %q", o.Prefix)
		return p
	case r.Superseded != nil:
		refuse("another region was promoted %s: run lapse demote here, and then lapse serve --follow %s", r.Superseded,
			r.Superseded.Domain)
		return p
	case !r.Mirror && r.Promotion == nil && len(r.Former) > 0:
		refuse("this region is the first already: it was promoted %s", r.Former[len(r.Former)-1])
		return p
	case !r.Mirror && r.Promotion == nil:
		refuse("this region follows no other, so it is the first already")
		return p
	}
	p.Steps = o.steps(f)
	changed := o.changed(f.Here)
	handedOver := false
	if root := f.There[o.Root()]; root != nil {
		handedOver = p.judgeFirst(f, root, refuse)
	}
	switch {
	case f.Drain && f.Reach != (Reach{}):
		refuse("the region in the JetStream domain %q cannot hand over: %s", f.Role.Follows, f.Reach)
	case f.Drain && f.There[o.Root()] == nil:
		refuse("the region in the JetStream domain %q cannot hand over: it has no log", f.Role.Follows)
	case f.Drain && changed != "" && !handedOver:
		refuse("the stream %s here was changed before the first region was asked to hand over: finish without --from",
			changed)
	case !f.Drain && !handedOver:
		p.judgeLost(f, changed, unless)
	}
	if f.Drain && changed == "" {
		p.judgeNear(f, o, unless)
	}
	if changed == "" {
		for _, text := range f.Differ {
			unless("%s", text)
		}
	}
	o.judgeStreams(f, refuse)
	for _, text := range slices.Concat(f.Denied, f.Overlap) {
		refuse("%s", text)
	}
	if f.Mapping != nil {
		refuse("%v", f.Mapping)
	}
	return p
}

// judgeFirst judges whether the first region still is that. It reports whether that has handed over to this region.
func (p *Plan) judgeFirst(f *Facts, root *jetstream.StreamInfo, refuse func(string, ...any)) (handedOver bool) {
	there, err := wire.ParseRegion(root.Config.Metadata)
	notFirst := func(domain, first string) {
		refuse("the region in the JetStream domain %q is not the first any more: the one in %q was promoted in its place, "+
			"and there can be one first region: run lapse demote --first %s here, and then lapse serve --follow %s", domain,
			first, first, first)
	}
	switch {
	case err != nil:
		refuse("the log of the region in the JetStream domain %q: %v", f.Role.Follows, err)
	case there.Superseded != nil && there.Superseded.Domain != f.Domain:
		notFirst(f.Role.Follows, there.Superseded.Domain)
	case there.Follows != "":
		notFirst(f.Role.Follows, there.Follows)
	case there.Superseded != nil:
		return true
	case wire.Identity(root.Config.Metadata, root.Created) != f.Role.Identity && root.Config.Mirror == nil &&
		f.Role.Mirror:
		text := fmt.Sprintf("the region in the JetStream domain %q has another log than the one that was mirrored here, "+
			"created at %s", f.Role.Follows, FormatID(Identity(root)))
		if f.Drain {
			refuse("%s", text)
		}
	}
	return false
}

// judgeLost judges whether the first region is lost. Only silence is silence.
func (p *Plan) judgeLost(f *Facts, changed string, unless func(string, ...any)) {
	seen := f.Seen
	switch first := f.Role.Follows; {
	case f.Reach == Reach{}:
		p.answers = true
		text := ErrFirstAnswers.Error() + fmt.Sprintf(", in the JetStream domain %q: let it hand over (--from), so that "+
			"nothing is lost; or stop it first; or give up what it has not sent yet", first)
		if changed != "" {
			text = ErrFirstAnswers.Error() + fmt.Sprintf(", in the JetStream domain %q, and the stream %s here follows it no "+
				"more: this promotion can only be finished, which gives up what the first region has not sent before", first,
				changed)
		}
		unless("%s", text)
	case f.Reach.Err != nil:
		unless("it is not known whether the region in the JetStream domain %q is lost: %v", first, f.Reach.Err)
	case seen != nil && seen.Running && seen.Following != nil && seen.Following.Down == 0:
		unless("the region in the JetStream domain %q does not answer this command, and it answers the processes of lapse "+
			"here: the user of this command may lack a permission", first)
	case f.Reach.Late && (seen == nil || !seen.Running || seen.Following == nil):
		unless("it is not known whether the region in the JetStream domain %q is lost: no answer came, and no process of "+
			"lapse here says whether the link is down", first)
	}
}

// judgeNear judges whether the region here can go on as soon as the first region hands over.
func (p *Plan) judgeNear(f *Facts, o Options, unless func(string, ...any)) {
	for _, name := range o.Prefix.MirrorStreams(o.Shards) {
		if lacks := behind(f.Here[name], f.There[name]); lacks > nearEnough {
			unless("the mirror %s is %d messages behind: nobody could write until it has them", name, lacks)
		}
	}
	switch seen := f.Seen; {
	case seen == nil:
	case !seen.Running:
		unless("no process of lapse runs here: nobody could write until one does")
	case len(f.hindrances()) > 0:
		unless("lapse is not ready here: %s", strings.Join(f.hindrances(), "; "))
	case seen.Following != nil && seen.Following.Behind > nearEnough:
		unless("lapse has not applied %d messages here: nobody would get outcomes until it has", seen.Following.Behind)
	}
}

// hindrances are why the processes here could not go on as those of the first region. Where a promotion has begun they
// have stopped for it, which is no reason against going on with it.
func (f *Facts) hindrances() []string {
	switch {
	case f.Seen == nil:
		return nil
	case f.Role.Promotion != nil:
		return f.Seen.Problems
	}
	return slices.Concat(f.Seen.Problems, f.Seen.Stopped)
}

// Hindered reports whether the processes here are not ready for another reason than a promotion that has begun.
func (f *Facts) Hindered() bool { return len(f.hindrances()) > 0 }

// judgeStreams judges whether each stream can become one of a first region, and is as lapse needs it then.
func (o Options) judgeStreams(f *Facts, refuse func(string, ...any)) {
	wants, err := o.promoted(f)
	if err != nil {
		refuse("%v", err)
		return
	}
	for _, want := range wants {
		info := f.Here[want.Name]
		if info == nil {
			refuse("there is no stream %s", want.Name)
			continue
		}
		switch c := info.Config; {
		case c.Mirror == nil && f.Role.Promotion == nil:
			refuse("the stream %s is no mirror", want.Name)
		case c.Mirror != nil && domainOf(c) != f.Role.Follows:
			refuse("the stream %s mirrors the JetStream domain %q, and the log %q", want.Name, domainOf(c), f.Role.Follows)
		default:
			if err := compare(opened(c, want), want); err != nil {
				refuse("%v", err)
			}
		}
	}
}

// promoted are the configurations that the streams have after a promotion, in the order in which they get them; those
// of the snapshots, which are of another kind, are not among them.
func (o Options) promoted(f *Facts) (all []jetstream.StreamConfig, err error) {
	root := f.Here[o.Root()]
	if root == nil {
		return nil, mismatch(o.Root(), "it does not exist")
	}
	if o.levels, err = levels(root.Config); err != nil {
		return nil, err
	}
	identity := "0"
	if p := f.Role.Promotion; p != nil {
		identity = strconv.FormatInt(p.Identity, 10)
	}
	all = append(all, o.eventsConfig(identity))
	for o.Shard = range o.Shards {
		all = append(all, o.logConfig(identity))
	}
	if o.sharded() {
		all = append(all, o.configsConfig())
	}
	return all, nil
}

// changed is a stream that a promotion has changed already; "" if it has changed none.
func (o Options) changed(here map[string]*jetstream.StreamInfo) string {
	for _, name := range o.Prefix.MirrorStreams(o.Shards) {
		if info := here[name]; info != nil && info.Config.Mirror == nil {
			return name
		}
	}
	return ""
}

// steps are the steps of a promotion, and which of them are done.
func (o Options) steps(f *Facts) (all []Step) {
	began := f.Role.Promotion
	changed := o.changed(f.Here) != ""
	all = append(all, Step{fmt.Sprintf("note in stream %s that the promotion has begun", o.Root()), began != nil})
	if f.Drain || began != nil && began.Drain {
		all = append(all, Step{fmt.Sprintf("let the region in the JetStream domain %q hand over, and wait for what it has",
			f.Role.Follows), changed})
	}
	for _, name := range o.Prefix.MirrorStreams(o.Shards) {
		if info := f.Here[name]; info != nil {
			opened := info.Config.Mirror == nil && !slices.Contains(info.Config.Subjects, ClosedSubject(f.Domain, name))
			all = append(all, Step{fmt.Sprintf("make a stream of the mirror %s", name), opened})
		}
	}
	return append(all, Step{fmt.Sprintf("note in stream %s that the promotion has ended", o.Root()), false})
}

// next is the first step that is not done.
func next(steps []Step) string {
	for _, s := range steps {
		if !s.Done {
			return s.Do
		}
	}
	return "nothing"
}

// String is how a person reads it.
func (r Reach) String() string {
	switch {
	case r.Err != nil:
		return r.Err.Error()
	case r.Silent:
		return "nothing answers there"
	case r.Late:
		return "no answer came"
	}
	return "it answers"
}

// Err is why the plan is not carried out; nil if it is.
func (p *Plan) Err() error {
	switch {
	case len(p.Refused) == 0:
		return nil
	case p.answers && len(p.Overrides) == 0 && len(p.Refused) == 1:
		return fmt.Errorf("%w: nothing was changed: %s", ErrFirstAnswers,
			strings.TrimPrefix(p.Refused[0], ErrFirstAnswers.Error()+", "))
	}
	return fmt.Errorf("nothing was changed: %s", strings.Join(p.Refused, "; and "))
}

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
	f.There[o.Root()], f.Reach = p.Origin.reach(ctx, o.Root())
	if f.Reach == (Reach{}) {
		for _, name := range o.Prefix.MirrorStreams(o.Shards) {
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
	for _, name := range o.Prefix.MirrorStreams(o.Shards) {
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
			f.Differ = append(f.Differ, fmt.Sprintf("the mirror %s ends at sequence %d, and the first region's at %d: it has "+
				"lost its end", name, last, there.State.LastSeq))
		case its != nil && !its.Time.Equal(mine.Time):
			f.Differ = append(f.Differ, fmt.Sprintf("message %d of stream %s was stored at %s in the first region, and at %s "+
				"here: they are not the same", last, name, nanoTime(its.Time.UnixNano()), nanoTime(mine.Time.UnixNano())))
		}
	}
	slices.Sort(f.Differ)
	return nil
}

// rewrite stores the configuration that a stream has.
func (p *Promotion) rewrite(ctx context.Context, name string) error {
	stream, err := p.JS.Stream(ctx, name)
	if err != nil {
		return err
	}
	return changeStream(ctx, p.JS, p.Opts.Prefix.CheckpointBucket(), stream, func(_ context.Context,
		info *jetstream.StreamInfo) (*jetstream.StreamConfig, error) {
		return &info.Config, nil
	})
}

// mayChange finds out whether the server allows to change each stream, and whether another stream listens where it is
// to listen.
func (p *Promotion) mayChange(ctx context.Context, f *Facts) error {
	wants, err := p.Opts.promoted(f)
	if err != nil {
		return nil // which the plan says
	}
	own := p.Opts.Prefix.MirrorStreams(p.Opts.Shards)
	for _, want := range wants {
		info := f.Here[want.Name]
		if info == nil {
			continue
		}
		if err := p.rewrite(ctx, want.Name); err != nil {
			f.Denied = append(f.Denied, fmt.Sprintf("stream %s cannot be changed: %v", want.Name, err))
		}
		for _, subject := range want.Subjects {
			names := p.JS.StreamNames(ctx, jetstream.WithStreamListSubject(subject))
			for name := range names.Name() {
				if !slices.Contains(own, name) {
					f.Overlap = append(f.Overlap, fmt.Sprintf("the stream %s here listens to %s, as %s has to: remove it, or change "+
						"its subjects", name, subject, want.Name))
				}
			}
			if err := names.Err(); err != nil {
				return fmt.Errorf("ask for the streams that listen to %s: %w", subject, err)
			}
		}
	}
	return nil
}
