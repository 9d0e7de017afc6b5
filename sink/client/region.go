package client

import (
	"context"
	"time"

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
