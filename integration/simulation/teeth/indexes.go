package main

const foldEntries, foldMaking = "processor/internal/fold/entries.go", "processor/internal/fold/making.go"

// indexTeeth break property indexes.
var indexTeeth = []tooth{
	{"former-values-stay", "X1", foldEntries,
		"A write leaves the entries of the values that it replaces.",
		`			if !slices.Contains(now, v) {`,
		`			if len(now) == 0 {`},
	{"entries-of-what-expired-stay", "X1", foldEntries,
		"A document that is reaped leaves its entries.",
		`changeEntries(c, config, nil, doc.Key.ID, doc.values(config), make([][]entries.Value, len(config.Indexes)))`,
		`changeEntries(c, config, nil, doc.Key.ID, doc.values(config), doc.values(config))`},
	{"one-place-too-far", "X2", foldMaking,
		"The place of making is behind a document that was not passed.",
		`			m.Score, m.ID = score, f.IDs[last]`,
		`			m.Score, m.ID = score+1, f.IDs[last]`},
	{"new-index-begins-at-the-place", "X2", foldMaking,
		"An index that is declared while another is made begins at the place of that.",
		`m, anew = store.Making{Slots: append(m.Slots, x.Slot), Index: ttlrules.ByInherit}, true`,
		`m.Slots, m.Index, anew = append(m.Slots, x.Slot), max(m.Index, ttlrules.ByInherit), true`},
	{"removed-index-stays", "X1", foldMaking,
		"An index that is removed keeps its entries.",
		`			change.Indexes = append(change.Indexes, store.IndexChanges{Slot: x.Slot, Unlink: true})
			m.Slots`,
		`			m.Slots`},
	{"dropped-collection-keeps-its-entries", "X1", foldMaking,
		"The entries of a collection stay when it is dropped.",
		`		drop.Indexes = append(drop.Indexes, store.IndexChanges{Slot: x.Slot, Unlink: true})`,
		`		drop.Indexes = append(drop.Indexes, store.IndexChanges{Slot: x.Slot})`},
	{"loaded-indexes-are-not-made", "X1", "processor/internal/shard/reload.go",
		"A snapshot that is loaded has no entries, and nobody makes them.",
		`full && len(c.Indexes) > 0 {`,
		`full && len(c.Indexes) > 8 {`},
	{"loaded-indexes-begin-late", "X2", "processor/internal/shard/reload.go",
		"The indexes of a snapshot that is loaded are made from the documents with a TTL of their own on.",
		`			m := fold.BeginMaking(c)`,
		`			m := fold.BeginMaking(c)
			m.Index++`},
	{"making-forgotten-by-a-takeover", "X2", "processor/internal/shard/takeover.go",
		"An owner that takes over does not go on with what is being made.",
		`	p.collections.ResumeMaking(stored.Making)`,
		`	p.collections.ResumeMaking(nil)`},
	{"lost-entries-unseen", "X1", "processor/internal/shard/owner.go",
		"The owner does not look whether an index has lost entries.",
		`collections, p.collections.IndexesOf(collections)...); err`,
		`collections); err`},
}
