package oracle

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/seed18712806/lapse/sink/wire"
)

// models are the models of the logs of all shards.
func (set Settings) models() []*Model {
	models := make([]*Model, max(set.Shards, 1))
	for i := range models {
		set.Shard = i
		models[i] = NewModel(set)
	}
	return models
}

// own are the events that follow from the log of the model.
func (m *Model) own(events []Message) []Message {
	if m.set.Shards <= 1 {
		return events
	}
	return slices.DeleteFunc(slices.Clone(events), func(msg Message) bool {
		kind, _, _ := strings.Cut(strings.TrimPrefix(msg.Subject, string(m.set.Prefix)+"."), ".")
		if kind != "expired" && kind != "expiring" && kind != "due" && kind != "changed" {
			return value(msg, wire.HeaderStream) != m.log().Stream()
		}
		source := value(msg, "ce-source")
		collection := source[strings.LastIndexByte(source, '/')+1:]
		shard := 0 // which publishes drops
		if token := value(msg, "ce-subject"); token != "" {
			shard = wire.ShardOf(m.set.Shards, collection, token)
		}
		return shard != m.set.Shard
	})
}

// join is one model of all documents, with what the logs of all shards require. Sequences and
// etags are those of each shard's own log. Do not apply anything to it.
func join(models []*Model) *Model {
	if len(models) == 1 {
		return models[0]
	}
	all := NewModel(models[0].set)
	all.open = models[0].open
	all.now, all.collections = math.MaxInt64, models[0].collections
	for _, m := range models {
		maps.Copy(all.docs, m.docs)
		all.seq, all.now = all.seq+m.seq, min(all.now, m.now)
		all.Expiries, all.Rejections = append(all.Expiries, m.Expiries...), append(all.Rejections, m.Rejections...)
		all.Warnings, all.Changes = append(all.Warnings, m.Warnings...), append(all.Changes, m.Changes...)
		maps.Copy(all.names, m.names)
	}
	return all
}
