package streams

import (
	"errors"
	"fmt"

	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// ErrRefused: the shard is damaged, and the log does not reach back to rebuild it.
var ErrRefused = errors.New("the shard is refused")

// Refusal is the verdict that it would be wrong to go on: lapse has lost what it needs, or what the servers hold
// does not fit together. Whoever returns it has written nothing that it is about. A person has to restore what is
// missing, or give it up with lapse begin-anew. A failure, such as a server that does not answer, is no Refusal.
type Refusal struct {
	Kind   error  // such as ErrLogTruncated; errors.Is finds it
	Reason error  // what is missing, or does not fit
	Advice string // how it can be restored; empty if Reason says that

	Accept  Loss // what a person can give up; empty if nothing helps but to restore
	Removes bool // the next start then removes documents that Redis holds

	shards bool // see OtherShards

	gaps []Gap // of an ErrLogGap
	gap  Gap   // the first of them that was not applied
}

// Loss is what a person can give up with lapse begin-anew.
type Loss string

// What can be given up. The flags of lapse begin-anew have these names, behind "accept-".
const (
	LostLogEnd       Loss = "lost-log-end"       // the log ends before what was applied, or another one took its place
	LostLogBeginning Loss = "lost-log-beginning" // messages that were not applied were truncated
	LostLogMessages  Loss = "lost-log-messages"  // from the middle of the log
	LostDocuments    Loss = "lost-documents"     // that Redis has lost, and the log does not have
	LostEvents       Loss = "lost-events"        // that cannot be published again
)

// Losses are all kinds of losses.
var Losses = []Loss{LostLogEnd, LostLogBeginning, LostLogMessages, LostDocuments, LostEvents}

// Flag is the flag of lapse begin-anew that gives the loss up.
func (l Loss) Flag() string { return "--accept-" + string(l) }

// RedisIsSaved is the flag of lapse begin-anew with which a person says that Redis was saved.
const RedisIsSaved = "--redis-is-saved"

// Refuse makes a Refusal whose Reason is formatted.
func Refuse(kind error, advice, format string, args ...any) *Refusal {
	return &Refusal{Kind: kind, Reason: fmt.Errorf(format, args...), Advice: advice}
}

// AsRefusal is the refusal that an error is, or wraps; nil if there is none. What another version of lapse has stored
// is refused wherever it is met.
func AsRefusal(err error) (r *Refusal) {
	if !errors.As(err, &r) && errors.Is(err, wire.ErrFormat) {
		return Refuse(wire.ErrFormat, "", "%w", err)
	}
	return r
}

// orNil is the refusal as an error; nil if there is none.
func (r *Refusal) orNil() error {
	if r == nil {
		return nil
	}
	return r
}

func (r *Refusal) Error() string {
	text := r.What().Error()
	if r.Advice != "" {
		text += ": " + r.Advice
	}
	switch r.Accept {
	case "":
		return text
	case LostLogMessages:
		return fmt.Sprintf("%s; or go on without them: stop lapse and run lapse begin-anew %s (nothing else is given up, "+
			"and lapse does not ask about them again)", text, r.Accept.Flag())
	case LostEvents:
		return fmt.Sprintf("%s; or give up these events for good and go on without them: stop lapse and run lapse "+
			"begin-anew %s (the documents stay as they are, and nothing else is given up)", text, r.Accept.Flag())
	}
	stop, saved, redis := "stop lapse", "", "Redis holds nothing"
	if r.Removes {
		stop, saved, redis = "stop lapse, save Redis (redis-cli --rdb FILE, or BGSAVE)", " "+RedisIsSaved,
			"the next start removes what Redis holds"
	}
	return fmt.Sprintf("%s; or give up what is missing and begin anew from the log as it is: %s and run lapse "+
		"begin-anew %s%s (lapse uses no snapshot, and %s)", text, stop, r.Accept.Flag(), saved, redis)
}

// What is the reason with its kind, without what a person can do.
func (r *Refusal) What() error {
	if errors.Is(r.Reason, r.Kind) {
		return r.Reason
	}
	return fmt.Errorf("%w: %w", r.Kind, r.Reason)
}

// Because is the refusal with one more reason.
func (r *Refusal) Because(text string) *Refusal {
	c := *r
	c.Reason = fmt.Errorf("%w; %s", r.Reason, text)
	return &c
}

// Unwrap lets errors.Is find the kind, and what the reason wraps.
func (r *Refusal) Unwrap() []error { return []error{r.Kind, r.Reason} }

// EndsStart reports whether the refusal is about a setting of a stream or of Redis. A start ends with it; a
// process with any other refusal stays up, and reads go on.
func (r *Refusal) EndsStart() bool { return r.Kind == ErrMismatch || r.Kind == store.ErrServer }

// OtherShards reports whether the options have another number of shards than the prefix. Then the process has to end,
// also if it runs: as long as it has a lease, no process with the right number gets that.
func (r *Refusal) OtherShards() bool { return r.shards }
