package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/seed18712806/lapse/sink/credentials"
	"github.com/seed18712806/lapse/sink/wire"
)

// goneAfter is how old the entry of a process may be before the process counts as gone.
const goneAfter = 10 * time.Second

// Status is the state of lapse on a NATS server: its streams, its processes, and which of these owns
// which shard.
type Status struct {
	Prefix      wire.Prefix    `json:"prefix"`
	Server      ServerStatus   `json:"server"`
	Streams     []StreamStatus `json:"streams"`
	Checkpoints *BucketStatus  `json:"checkpoints,omitempty"` // absent if there is no such bucket
	Shards      []ShardStatus  `json:"shards"`                // only those that have or had an owner
	Members     []MemberStatus `json:"members"`
	// Region is what this region has to do with others; absent if that is nothing.
	Region *RegionStatus `json:"region,omitempty"`
}

// ServerStatus is the NATS server that the client is connected to.
type ServerStatus struct {
	URL     string `json:"url"` // without passwords
	Name    string `json:"name"`
	Version string `json:"version"`
}

// StreamStatus is the state of a stream.
type StreamStatus struct {
	Name      string     `json:"name"`
	Messages  uint64     `json:"messages"`
	Bytes     uint64     `json:"bytes"`
	FirstSeq  uint64     `json:"firstSeq"`
	LastSeq   uint64     `json:"lastSeq"`
	FirstTime *wire.Time `json:"firstTime,omitempty"` // absent if there are no messages
	LastTime  *wire.Time `json:"lastTime,omitempty"`
	Replicas  int        `json:"replicas"`
}

// BucketStatus is the state of the bucket of checkpoints.
type BucketStatus struct {
	Name    string `json:"name"`
	Entries uint64 `json:"entries"`
	Bytes   uint64 `json:"bytes"`
}

// ShardStatus is the state of a shard, and the process that owns it.
type ShardStatus struct {
	Shard int `json:"shard"`
	// Owner is the name of the process; empty if none owns the shard.
	Owner string     `json:"owner"`
	Since *wire.Time `json:"since,omitempty"`
	// Alive means that the owner renewed its entry in the last 10 seconds. The fields below
	// are from that entry. Problem is one of the process.
	Alive       bool    `json:"alive"`
	Applied     uint64  `json:"applied"`
	LagMessages uint64  `json:"lagMessages"`
	Overdue     float64 `json:"overdue"` // seconds
	Problem     string  `json:"problem,omitempty"`
	// Retention is absent if the owner does not know it.
	Retention *wire.Retention `json:"retention,omitempty"`
}

// The roles of a process.
const (
	RoleOwner   = "owner"
	RoleStandby = "standby"
	RoleGone    = "gone" // its entry is older than 10 seconds
)

// MemberStatus is the state of a process.
type MemberStatus struct {
	Role string `json:"role"`
	// SeenAgo is the age of its entry in seconds, by the clock of the NATS servers.
	SeenAgo float64 `json:"seenAgo"`
	wire.Member
}

// readStatus reads the state of lapse. If there is no log, the error is ErrUnavailable.
func readStatus(ctx context.Context, l *connection) (Status, error) {
	s := Status{
		Prefix: l.Prefix,
		Server: ServerStatus{URL: credentials.RedactURLs(l.NC.ConnectedUrl()), Name: l.NC.ConnectedServerName(),
			Version: l.NC.ConnectedServerVersion()},
		Shards: []ShardStatus{}, Members: []MemberStatus{},
	}
	names, err := streams(ctx, l)
	if err != nil {
		return s, err
	}
	if s.Region, err = readRegion(ctx, l, names[0]); err != nil {
		return s, err
	}
	var now time.Time // by the clock of the NATS servers
	for _, name := range names {
		info, err := streamInfo(ctx, l, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue // status shows the rest
		}
		if err != nil {
			return s, err
		}
		s.Streams = append(s.Streams, stream(info))
		now = info.TimeStamp
	}
	checkpoints, err := streamInfo(ctx, l, "KV_"+l.Prefix.CheckpointBucket())
	switch {
	case err == nil:
		s.Checkpoints = &BucketStatus{l.Prefix.CheckpointBucket(), checkpoints.State.Msgs, checkpoints.State.Bytes}
		now = checkpoints.TimeStamp
	case !errors.Is(err, jetstream.ErrStreamNotFound):
		return s, err
	}
	return s, s.members(ctx, l, now)
}

// readShards is the number of shards of the prefix. If there is no log, the error is ErrUnavailable.
func readShards(ctx context.Context, l *connection) (int, error) {
	p := l.Prefix
	_, err := streamInfo(ctx, l, p.LogStream())
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return 1, err
	}
	info, err := streamInfo(ctx, l, p.ConfigStream())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, unavailable(`there is no lapse with the prefix %q at %s: no stream %s. "lapse serve" creates it`, p,
			credentials.RedactURLs(l.Server), p.LogStream())
	}
	if err != nil {
		return 0, err
	}
	n, _ := strconv.Atoi(info.Config.Metadata[wire.ShardsKey])
	return min(max(n, 1), wire.MaxShards), nil
}

// streams are the names of the streams of the prefix: the log or, with several shards, the
// stream of configurations and the logs; and the stream of events.
func streams(ctx context.Context, l *connection) (names []string, err error) {
	p := l.Prefix
	shards, err := readShards(ctx, l)
	if err != nil {
		return nil, err
	}
	if shards > 1 {
		names = append(names, p.ConfigStream())
	}
	for shard := range shards {
		names = append(names, p.Log(shard, shards).Stream())
	}
	return append(names, p.EventsStream()), nil
}

// streamInfo looks up a stream. Only jetstream.ErrStreamNotFound comes without an explanation.
func streamInfo(ctx context.Context, l *connection, name string) (*jetstream.StreamInfo, error) {
	stream, err := lookUp(ctx, l, name)
	if err != nil {
		return nil, err
	}
	return stream.CachedInfo(), nil
}

// lookUp looks up a stream. Only jetstream.ErrStreamNotFound comes without an explanation.
func lookUp(ctx context.Context, l *connection, name string) (stream jetstream.Stream, err error) {
	within, cancel := l.Within(ctx, streamInfoAPI+name)
	defer cancel()
	err = l.Ask(within, func(ctx context.Context) (err error) {
		stream, err = l.JS.Stream(ctx, name)
		return err
	})
	switch {
	case err != nil && denial(within) != nil:
		return nil, denial(within)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, err
	case err != nil:
		return nil, l.StreamError("look up the stream "+name, name, err)
	}
	return stream, nil
}

// eventsStream looks up the stream of events. If there is none, the error says that nothing listens on a subject.
func eventsStream(ctx context.Context, l *connection, subject string) (jetstream.Stream, error) {
	stream, err := lookUp(ctx, l, l.Prefix.EventsStream())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = l.NoLapse(subject)
	}
	return stream, err
}

func stream(info *jetstream.StreamInfo) StreamStatus {
	state := info.State
	s := StreamStatus{
		Name: info.Config.Name, Messages: state.Msgs, Bytes: state.Bytes,
		FirstSeq: state.FirstSeq, LastSeq: state.LastSeq, Replicas: info.Config.Replicas,
	}
	if state.Msgs > 0 {
		first, last := wire.Time(state.FirstTime.UnixMilli()), wire.Time(state.LastTime.UnixMilli())
		s.FirstTime, s.LastTime = &first, &last
	}
	return s
}

// members adds the processes and the shards. It asks for all entries at once, which lapse itself
// may do too; a watch of the bucket would need a consumer.
func (s *Status) members(ctx context.Context, l *connection, now time.Time) error {
	bucket := l.Prefix.MembersBucket()
	stream, prefix := "KV_"+bucket, "$KV."+bucket+"."
	if _, err := streamInfo(ctx, l, stream); errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	within, cancel := l.Within(ctx, directAPI+stream)
	defer cancel()
	failed := func(err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return cmp.Or(denial(within), l.StreamError("read the bucket "+bucket, bucket, err))
	}
	messages, err := jetstreamext.GetLastMsgsFor(within, l.JS, stream, []string{prefix + wire.MemberKey("*"), prefix +
		"lease.*", prefix + wire.FollowerKey("*")})
	if err != nil {
		return failed(err)
	}
	leases := make(map[int]wire.Lease)
	for m, err := range messages {
		if errors.Is(err, jetstreamext.ErrNoMessages) {
			break
		}
		if err != nil {
			return failed(err)
		}
		if m.Header.Get("KV-Operation") != "" { // a marker: the entry was deleted
			continue
		}
		key := strings.TrimPrefix(m.Subject, prefix)
		if err := s.add(key, m, now, leases); err != nil {
			return fmt.Errorf("entry %s of the bucket %s is not valid: %w", key, bucket, err)
		}
	}
	if err := within.Err(); err != nil { // then the entries may be incomplete
		return failed(err)
	}
	s.assign(leases)
	return nil
}

// add adds an entry: a member or a follower to the status, a lease to leases.
func (s *Status) add(key string, entry *jetstream.RawStreamMsg, now time.Time, leases map[int]wire.Lease) error {
	ago := max(0, now.Sub(entry.Time)).Truncate(time.Millisecond).Seconds()
	if domain, ok := strings.CutPrefix(key, wire.FollowerKey("")); ok {
		if s.Region == nil {
			s.Region = &RegionStatus{}
		}
		s.Region.Followers = append(s.Region.Followers, FollowerStatus{domain, ago})
		return nil
	}
	if _, ok := strings.CutPrefix(key, "member."); ok {
		m := MemberStatus{SeenAgo: ago}
		s.Members = append(s.Members, m)
		return json.Unmarshal(entry.Data, &s.Members[len(s.Members)-1].Member)
	}
	if text, ok := strings.CutPrefix(key, "lease."); ok {
		shard, err := strconv.Atoi(text)
		if err != nil {
			return nil // an entry of a later version
		}
		var lease wire.Lease
		if err := json.Unmarshal(entry.Data, &lease); err != nil {
			return err
		}
		leases[shard] = lease
	}
	return nil
}

// assign finds the owner of each shard. A lease counts for more than the entry of a process,
// which may be from before the process lost the shard.
func (s *Status) assign(leases map[int]wire.Lease) {
	byID, shards := make(map[string]*MemberStatus), make(map[int]*ShardStatus)
	// If two processes claim a shard, the one with the newer entry counts.
	slices.SortFunc(s.Members, func(a, b MemberStatus) int { return cmp.Compare(a.SeenAgo, b.SeenAgo) })
	for i := range s.Members {
		m := &s.Members[i]
		byID[m.ID], m.Role = m, RoleStandby
		for _, shard := range m.Owns {
			if _, leased := leases[shard]; !leased {
				leases[shard] = wire.Lease{Owner: m.ID, Name: m.Name}
			}
		}
	}
	for shard, lease := range leases {
		status := &ShardStatus{Shard: shard}
		shards[shard] = status
		if lease.Owner == "" {
			continue
		}
		status.Owner = cmp.Or(lease.Name, lease.Owner)
		if lease.Since != 0 {
			status.Since = &lease.Since
		}
		if m := byID[lease.Owner]; m != nil {
			m.Role = RoleOwner
			status.Applied, status.LagMessages, status.Overdue, status.Problem = m.Applied, m.LagMessages, m.Overdue, m.Problem
			status.Retention = m.Retention
			if len(m.Shards) > 0 { // the others are of all shards of the process
				p := wire.ShardProgress{}
				if i := slices.IndexFunc(m.Shards, func(p wire.ShardProgress) bool { return p.Shard == shard }); i >= 0 {
					p = m.Shards[i]
				}
				status.Applied, status.LagMessages = p.Applied, p.LagMessages
				status.Overdue, status.Retention = p.Overdue, p.Retention
			}
			status.Alive = m.SeenAgo <= goneAfter.Seconds()
		}
	}
	s.Region.add(s.Members)
	if s.Region != nil {
		slices.SortFunc(s.Region.Followers, func(a, b FollowerStatus) int { return cmp.Compare(a.Domain, b.Domain) })
	}
	for i := range s.Members {
		if s.Members[i].SeenAgo > goneAfter.Seconds() {
			s.Members[i].Role = RoleGone
		}
	}
	for _, status := range shards {
		s.Shards = append(s.Shards, *status)
	}
	slices.SortFunc(s.Shards, func(a, b ShardStatus) int { return cmp.Compare(a.Shard, b.Shard) })
	order := map[string]int{RoleOwner: 0, RoleStandby: 1, RoleGone: 2}
	slices.SortFunc(s.Members, func(a, b MemberStatus) int {
		return cmp.Or(cmp.Compare(order[a.Role], order[b.Role]), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
}

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
		return unavailable("the first region (JetStream domain %q) does not answer: the region at %s follows it, and takes "+
			"no writes itself. Try again once the link to it is up; if it is lost, somebody has to run lapse promote here",
			region.Follows, where)
	case region.Superseded != nil:
		return unavailable("the first region (JetStream domain %q) does not answer: the region at %s is not the first any "+
			"more, since that was promoted %s. Try again once the link to it is up",
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
