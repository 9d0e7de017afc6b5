package client

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/credentials"
	"github.com/seed18712806/lapse/sink/wire"
)

// AbsentLog is Absent of a subject of the log. The log may be in another region, and the link to that may be down.
func (l *connection) AbsentLog(ctx context.Context, subject string) error {
	if err := l.elsewhere(ctx); err != nil {
		return err
	}
	return l.Absent(ctx, subject)
}

// elsewhere is an error if another region takes the writes. It is nil too if that cannot be found out. It asks for
// the stream of events: a client may look at that more often than at the log.
func (l *connection) elsewhere(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	info, err := streamInfo(ctx, l, l.Prefix.EventsStream())
	if err != nil {
		return nil
	}
	region, err := wire.ParseRegion(info.Config.Metadata)
	where := credentials.RedactURLs(l.Server)
	switch {
	case err != nil:
		return nil
	case region.Follows != "":
		return unavailable("the first region (JetStream domain %q) does not answer: the region at %s follows it, and takes no writes itself. Try again once the link to it is up; if it is lost, somebody has to run lapse promote here",
			region.Follows, where)
	case region.Superseded != nil:
		return unavailable("the first region (JetStream domain %q) does not answer: the region at %s is not the first any more, since that was promoted %s. Try again once the link to it is up",
			region.Superseded.Domain, where, region.Superseded)
	}
	return nil
}

// RegionStatus is what a region has to do with others.
type RegionStatus struct {
	wire.Region // as the log has it
	// Following is how far the region is behind the first, as the owners of the shards have last said; absent if it
	// follows none, or if nobody has said it.
	Following *wire.Following `json:"following,omitempty"`
	// Followers are the regions that follow this one, or have.
	Followers []FollowerStatus `json:"followers,omitempty"`
}

// FollowerStatus is a region that follows this one, or has.
type FollowerStatus struct {
	Domain string `json:"domain"` // of JetStream
	// SeenAgo is for how many seconds it has not said so, by the clock of the NATS servers. It does every ten minutes.
	SeenAgo float64 `json:"seenAgo"`
}

// readRegion reads what a region has to do with others. The root is the log, or the stream of configurations.
func readRegion(ctx context.Context, l *connection, root string) (*RegionStatus, error) {
	stream, err := lookUp(ctx, l, root)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil // status shows the rest
	}
	if err != nil {
		return nil, err
	}
	info, r := stream.CachedInfo(), RegionStatus{}
	if r.Region, err = wire.ParseRegion(info.Config.Metadata); err != nil {
		return nil, err
	}
	if info.Config.Metadata[wire.RegionKey] == "" {
		return nil, nil
	}
	return &r, nil
}

// add adds how far the region is behind. What a process has said before a promotion does not count.
func (r *RegionStatus) add(members []MemberStatus) {
	if r == nil || r.Follows == "" {
		return
	}
	for _, m := range members {
		if m.Role == RoleOwner {
			r.Following = wire.Further(r.Following, m.Following)
		}
	}
}
