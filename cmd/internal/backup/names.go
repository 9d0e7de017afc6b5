package backup

import "github.com/seed18712806/lapse/sink/wire"

// names are the streams that a prefix can have. The root of the prefix is the last one.
type names struct {
	prefix wire.Prefix
	shards int
}

func (n names) events() string      { return n.prefix.EventsStream() }
func (n names) checkpoints() string { return "KV_" + n.prefix.CheckpointBucket() }
func (n names) snapshots() string   { return "OBJ_" + n.prefix.SnapshotBucket() }

// logs are the logs of the shards.
func (n names) logs() (all []string) {
	for shard := range n.shards {
		all = append(all, n.prefix.Log(shard, n.shards).Stream())
	}
	return all
}

// root is the stream whose identity stands for that of the prefix.
func (n names) root() string {
	if n.shards > 1 {
		return n.prefix.ConfigStream()
	}
	return n.logs()[0]
}

// all are all streams, in the order in which a restore completes them.
func (n names) all() []string {
	all := append([]string{n.snapshots(), n.checkpoints(), n.events()}, n.logs()...)
	if n.shards > 1 {
		all = append(all, n.root())
	}
	return all
}
