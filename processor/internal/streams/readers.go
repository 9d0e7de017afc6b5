package streams

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/wire"
)

// Readers keeps a mirror of the stream of events in an account of NATS for readers, with the same sequences and
// stamps. Their consumers are in that account, so they harm nobody outside of it.
//
// lapse makes the consumer that feeds the mirror. If the mirror made it, the account would need the right to create
// consumers of the stream of events, and a push consumer publishes wherever its creator wants.
type Readers struct {
	account string
	prefix  wire.Prefix
	here    jetstream.JetStream
	there   jetstream.JetStream // of the account, by its exports
	logger  *slog.Logger
}

const (
	// defaultConsumers is how many consumers a nats-server allows a stream unless something else is set.
	defaultConsumers = 1000
	readersSilent    = 10 * time.Second // a mirror gets a heartbeat each second
)

// NewReaders makes the Readers of an account.
func NewReaders(js jetstream.JetStream, prefix wire.Prefix, account string, logger *slog.Logger) (*Readers, error) {
	there, err := jetstream.NewWithDomain(js.Conn(), account)
	return &Readers{account: account, prefix: prefix, here: js, there: there, logger: logger}, err
}

// Keep makes the mirror and its consumer if they are absent, and gives the mirror the limits of the stream of events,
// because a mirror forgets by its own limits. It returns what a person has to do.
func (r *Readers) Keep(ctx context.Context) error {
	name := r.prefix.EventsStream()
	mirror, err := r.there.Stream(ctx, name)
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return r.failed("look up stream "+name, err)
	}
	absent := err != nil
	original, err := r.here.Stream(ctx, name) // after the mirror, so that it has at least what the mirror has
	if err != nil {
		return fmt.Errorf("look up stream %s: %w", name, err)
	}
	want := r.config(original.CachedInfo())
	if absent {
		return r.create(ctx, want)
	}
	have := mirror.CachedInfo()
	if c := have.Config.Mirror; c == nil || c.Consumer == nil || *c.Consumer != *want.Mirror.Consumer {
		return fmt.Errorf("its stream %s is not the mirror that lapse makes: %s", name, r.remove())
	}
	if err := r.compare(ctx, mirror, original); err != nil {
		return err
	}
	if err := r.feed(ctx, have.State.LastSeq); err != nil {
		return err
	}
	if err := r.limit(ctx, have.Config, want); err != nil {
		return err
	}
	if source := have.Mirror; source != nil && (source.Error != nil || source.Active > readersSilent) {
		return fmt.Errorf("NATS does not feed its stream %s (%s): compare its imports with those of "+
			"deploy/nats/accounts.conf", name, silence(source))
	}
	account, err := r.there.AccountInfo(ctx)
	if err != nil {
		return r.failed("look up its limits", err)
	}
	return CheckConsumers(have, account)
}

func silence(source *jetstream.StreamSourceInfo) string {
	if source.Error != nil {
		return source.Error.Description
	}
	return "nothing has come for " + source.Active.Round(time.Second).String()
}

// CheckConsumers returns an error if a stream has 80 % of the consumers that it may have.
func CheckConsumers(stream *jetstream.StreamInfo, account *jetstream.AccountInfo) error {
	most := cmp.Or(max(stream.Config.MaxConsumers, 0), max(account.Limits.MaxConsumers, 0), defaultConsumers)
	if n := stream.State.Consumers; n*10 >= most*8 {
		return fmt.Errorf("stream %s has %d consumers, of %d that NATS allows it; then nobody can follow it any more",
			stream.Config.Name, n, most)
	}
	return nil
}

// config is the configuration of the mirror.
func (r *Readers) config(original *jetstream.StreamInfo) jetstream.StreamConfig {
	c := asMirror(original.Config, &jetstream.StreamSource{
		Name:     original.Config.Name,
		External: &jetstream.ExternalStream{APIPrefix: "$JS." + strings.ToUpper(string(r.prefix)) + ".API"},
		Consumer: &jetstream.StreamConsumerSource{Name: r.consumer(), DeliverSubject: r.prefix.Readers(r.account)},
	})
	c.Duplicates = 0
	return c
}

// consumer is the name of the consumer that feeds the mirror.
func (r *Readers) consumer() string { return "readers-" + r.account }

func (r *Readers) create(ctx context.Context, c jetstream.StreamConfig) error {
	// A consumer that is left begins behind what the former mirror had acknowledged.
	if err := r.here.DeleteConsumer(ctx, c.Name, r.consumer()); err != nil &&
		!errors.Is(err, jetstream.ErrConsumerNotFound) {
		return fmt.Errorf("delete consumer %s: %w", r.consumer(), err)
	}
	if err := r.feed(ctx, 0); err != nil {
		return err
	}
	_, err := r.there.CreateStream(ctx, c)
	if hasNoRoom(err) {
		c.MaxBytes = -1 // it reserves nothing then, and forgets by its age
		_, err = r.there.CreateStream(ctx, c)
	}
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return nil // another process has just created it, by other limits: the next Keep compares
	}
	if err != nil {
		return r.failed("create stream "+c.Name, err)
	}
	r.logger.Info("created a mirror of the events for readers", slog.String("account", r.account),
		slog.String("stream", c.Name))
	return nil
}

// feed makes the consumer that feeds the mirror behind a sequence, if it is absent.
func (r *Readers) feed(ctx context.Context, after uint64) error {
	stream := r.prefix.EventsStream()
	_, err := r.here.PushConsumer(ctx, stream, r.consumer())
	if !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return err
	}
	c := jetstream.ConsumerConfig{
		Durable: r.consumer(), Description: "lapse: feeds the mirror in the account " + r.account,
		DeliverSubject: r.prefix.Readers(r.account),
		AckPolicy:      jetstream.AckFlowControlPolicy, FlowControl: true, IdleHeartbeat: time.Second, MaxAckPending: 1000,
		DeliverPolicy: jetstream.DeliverAllPolicy,
	}
	if after > 0 {
		c.DeliverPolicy, c.OptStartSeq = jetstream.DeliverByStartSequencePolicy, after+1
	}
	if _, err := r.here.CreatePushConsumer(ctx, stream, c); err != nil {
		return fmt.Errorf("create consumer %s: %w", c.Durable, err)
	}
	return nil
}

// compare returns an error if the mirror has other messages than the stream of events, or lacks some.
func (r *Readers) compare(ctx context.Context, mirror, original jetstream.Stream) error {
	name, have, want := r.prefix.EventsStream(), mirror.CachedInfo().State, original.CachedInfo().State
	other := have.LastSeq > want.LastSeq
	if !other && have.Msgs > 0 {
		m, err := events.GetMessage(ctx, r.here.Conn(), name, map[string]uint64{"seq": have.LastSeq})
		if err != nil {
			return fmt.Errorf("read stream %s: %w", name, err)
		}
		other = m != nil && !m.Time.Equal(have.LastTime)
	}
	if other {
		return fmt.Errorf("its stream %s has other messages than %s here, up to sequence %d (a restore, or a change of "+
			"regions): %s", name, name, have.LastSeq, r.remove())
	}
	if have.NumDeleted <= want.NumDeleted {
		return nil
	}
	lacks, err := mirror.Info(ctx, jetstream.WithDeletedDetails(true))
	if err != nil {
		return r.failed("look up stream "+name, err)
	}
	gone, err := original.Info(ctx, jetstream.WithDeletedDetails(true))
	if err != nil {
		return fmt.Errorf("look up stream %s: %w", name, err)
	}
	for _, seq := range lacks.State.Deleted {
		if _, deleted := slices.BinarySearch(gone.State.Deleted, seq); !deleted && seq >= gone.State.FirstSeq {
			return fmt.Errorf("its stream %s lacks message %d, which NATS has lost: %s", name, seq, r.remove())
		}
	}
	return nil
}

// limit gives the mirror the limits and the metadata of the stream of events.
func (r *Readers) limit(ctx context.Context, have, want jetstream.StreamConfig) error {
	same := have.MaxAge == want.MaxAge && have.MaxBytes == want.MaxBytes && have.MaxMsgs == want.MaxMsgs
	for key, value := range want.Metadata {
		same = same && have.Metadata[key] == value
	}
	if same {
		return nil
	}
	bytes := have.MaxBytes
	have.MaxAge, have.MaxBytes, have.MaxMsgs, have.Metadata = want.MaxAge, want.MaxBytes, want.MaxMsgs, want.Metadata
	_, err := r.there.UpdateStream(ctx, have)
	if hasNoRoom(err) && bytes == -1 {
		have.MaxBytes = bytes
		_, err = r.there.UpdateStream(ctx, have)
	}
	if err != nil {
		return r.failed("change stream "+have.Name, err)
	}
	return nil
}

func (r *Readers) failed(doing string, err error) error {
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrJetStreamNotEnabled) ||
		errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) {
		return fmt.Errorf("its JetStream does not answer on $JS.%s.API: compare exports and imports with those of "+
			"deploy/nats/accounts.conf", r.account)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// remove says how a person lets lapse make the mirror anew.
func (r *Readers) remove() string {
	return fmt.Sprintf("remove it with the operator of lapse (nats --js-api-prefix '$JS.%s.API' stream rm %s), and "+
		"lapse makes it anew; the durable consumers of these readers then begin anew",
		r.account, r.prefix.EventsStream())
}
