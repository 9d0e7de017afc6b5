package processor

import "context"

// ruleCollections sees to it that the log has the rule of the options, which collections exist. The rule counts from
// its place in the log on, so the processor is ready once that is applied: ruleCollections returns it, and with several
// shards notes its place in the stream of configurations. A region that follows another one has the rule of that.
func (s *session) ruleCollections(ctx context.Context) (upTo uint64, err error) {
	p, log := s.processor, s.monitor.log
	if s.follower != nil || p.asIs {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	was, known, err := s.owner.OpenCollections()
	if err != nil {
		return 0, err
	}
	seq, err := log.Streams.RuleCollections(ctx, s.monitor.js, p.opts.streams(p.nc.MaxPayload()), was, known)
	if err == nil && log.Streams.Configs != nil {
		s.ruled.Store(seq)
		return 0, nil
	}
	return seq, err
}
