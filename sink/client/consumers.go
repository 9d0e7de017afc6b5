package client

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// consumersAPI lists the consumers of a stream. Of an account whose API is imported, the prefix $JS has its name.
const consumersAPI = "API.CONSUMER.LIST."

// ConsumerStatus is the state of a durable name in the stream of events: of a consumer, or of the stripes of
// [Client.Ordered] together.
type ConsumerStatus struct {
	Account string   `json:"account,omitempty"` // whose mirror of the events it consumes; empty of the stream itself
	Name    string   `json:"name"`
	Follows []string `json:"follows"` // kinds with a collection or a target, such as expired.orders
	Stripes int      `json:"stripes,omitempty"`
	// Pending is how many messages were not delivered yet, and Unacked how many were and are not acknowledged.
	Pending uint64 `json:"pending"`
	Unacked int    `json:"unacked"`
	// Connected reports that a process waits for messages, or has some.
	Connected bool       `json:"connected"`
	Delivered *wire.Time `json:"delivered,omitempty"` // when a message was last delivered; absent if none was
}

// Backlog is how many messages are not acknowledged.
func (s ConsumerStatus) Backlog() uint64 { return s.Pending + uint64(max(0, s.Unacked)) }

// Consumers lists the durable consumers of the stream of events, by name, and those of its mirrors in other accounts,
// whose API the client's account imports as $JS.ACCOUNT.API. It leaves out those that lapse has for itself.
func (c *Client) Consumers(ctx context.Context, accounts ...string) ([]ConsumerStatus, error) {
	var all []ConsumerStatus
	for _, account := range append([]string{""}, accounts...) {
		found, err := readConsumers(ctx, c.l, account)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// JetStream is JetStream of the client's account, or of another one that it imports.
func (c *Client) JetStream(account string) (jetstream.JetStream, error) {
	if account == "" {
		return c.l.JS, nil
	}
	return jetstream.NewWithAPIPrefix(c.l.NC, "$JS."+account+".API")
}

func readConsumers(ctx context.Context, l *connection, account string) ([]ConsumerStatus, error) {
	js, err := (&Client{l}).JetStream(account)
	if err != nil {
		return nil, err
	}
	name, api := l.Prefix.EventsStream(), "$JS."
	if account != "" {
		api += account + "."
	}
	within, cancel := l.Within(ctx, api+"API.STREAM.INFO."+name, api+consumersAPI+name)
	defer cancel()
	var infos []*jetstream.ConsumerInfo
	err = l.Ask(within, func(ctx context.Context) error {
		stream, err := js.Stream(ctx, name)
		if err != nil {
			return err
		}
		infos = infos[:0]
		list := stream.ListConsumers(ctx)
		for info := range list.Info() {
			infos = append(infos, info)
		}
		return list.Err()
	})
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		doing := "list the consumers of the stream " + name
		if account != "" {
			doing = fmt.Sprintf("%s in the account %s", doing, account)
		}
		return nil, cmp.Or(denial(within), l.StreamError(doing, name, err))
	}
	return groupConsumers(l.Prefix, account, infos), nil
}

// groupConsumers puts the stripes of each durable name together.
func groupConsumers(prefix wire.Prefix, account string, infos []*jetstream.ConsumerInfo) []ConsumerStatus {
	byName := make(map[string]*ConsumerStatus)
	var names []string
	for _, info := range infos {
		if info.Config.Durable == "" || strings.HasPrefix(info.Config.DeliverSubject, string(prefix)+".readers.") {
			continue // of a follower that will leave, or of a mirror
		}
		name, striped := stripeOf(info)
		s := byName[name]
		if s == nil {
			s = &ConsumerStatus{Account: account, Name: name}
			byName[name], names = s, append(names, name)
		}
		s.add(prefix, info)
		if striped {
			s.Stripes++
		}
	}
	slices.Sort(names)
	all := make([]ConsumerStatus, len(names))
	for i, name := range names {
		all[i] = *byName[name]
	}
	return all
}

// stripeOf is the durable name of which a consumer is a stripe; its own name and false if it is none.
func stripeOf(info *jetstream.ConsumerInfo) (name string, striped bool) {
	name = info.Config.Durable
	at := strings.LastIndexByte(name, '-')
	if info.Config.PriorityPolicy != jetstream.PriorityPolicyPinned || at < 1 {
		return name, false
	}
	if n, err := strconv.Atoi(name[at+1:]); err != nil || n < 0 || n >= Stripes {
		return name, false
	}
	return name[:at], true
}

func (s *ConsumerStatus) add(prefix wire.Prefix, info *jetstream.ConsumerInfo) {
	s.Pending += info.NumPending
	s.Unacked += info.NumAckPending
	s.Connected = s.Connected || info.NumWaiting > 0 || info.NumAckPending > 0 || info.PushBound
	if last := info.Delivered.Last; last != nil {
		if at := wire.Time(last.UnixMilli()); s.Delivered == nil || at > *s.Delivered {
			s.Delivered = &at
		}
	}
	filters := info.Config.FilterSubjects
	if info.Config.FilterSubject != "" {
		filters = append(filters, info.Config.FilterSubject)
	}
	if len(filters) == 0 {
		filters = []string{string(prefix) + ".>"}
	}
	for _, filter := range filters {
		s.Follows = append(s.Follows, followed(strings.TrimPrefix(filter, string(prefix)+".")))
	}
	slices.Sort(s.Follows)
	s.Follows = slices.Compact(s.Follows)
}

// followed is what a filter is for: without the bucket of a document, of which a consumer has several.
func followed(filter string) string {
	part := strings.Split(filter, ".")
	if len(part) == 3 && part[0] != string(wire.KindDue) {
		return part[0] + "." + part[1]
	}
	return strings.TrimSuffix(filter, ".>")
}
