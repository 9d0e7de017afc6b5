package layout

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/sink/wire"
)

// TestKeys: each key of a shard begins alike and names one thing. Documents that are stored are found again only as
// long as these names stay.
func TestKeys(t *testing.T) {
	k := NewKeys("lapse", 0, 1)
	for want, got := range map[string]string{
		"lapse:{0.0}:": k.Base(), "lapse:{0.0}:state": k.State(), "lapse:{0.0}:config": k.Config(),
		"lapse:{0.0}:docs:c": k.Docs("c"), "lapse:{0.0}:inherit:c": k.Inherit("c"), "lapse:{0.0}:own:c": k.Own("c"),
		"lapse:{0.0}:by3:c": k.By(3, "c"), "entries:3:c": EntriesField(3, "c"),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	var bases []string
	for shard := range 4 {
		bases = append(bases, NewKeys("acme", shard, 4).Base())
	}
	if got, want := strings.Join(bases, " "), "acme:{0.1}: acme:{1.3}: acme:{2.1}: acme:{3.3}:"; got != want {
		t.Errorf("the shards have %s, want %s", got, want)
	}
}

// TestSlotsOfShards: the slots of the shards, as Redis computes them, are in as many equal ranges, and those of shard 0 are
// among the first keys, whatever the number of shards.
func TestSlotsOfShards(t *testing.T) {
	// The check value of the cluster specification, and slots that CLUSTER KEYSLOT tells.
	if crc := crc16("123456789"); crc != 0x31c3 {
		t.Errorf("the CRC16 of 123456789 is %#x, want 0x31c3", crc)
	}
	for tag, want := range map[string]int{"": 0, "foo": 12182, "123456789": 12739} {
		if got := slotOf(tag); got != want {
			t.Errorf("the slot of %q is %d, want %d", tag, got, want)
		}
	}
	first := FirstKeys("lapse")
	for shards := 1; shards <= wire.MaxShards; shards++ {
		for shard := range shards {
			k := NewKeys("lapse", shard, shards)
			tag := strings.TrimSuffix(strings.TrimPrefix(k.Base(), "lapse:{"), "}:")
			least, end := (shard*slots+shards-1)/shards, ((shard+1)*slots+shards-1)/shards
			if slot := slotOf(tag); slot < least || slot >= end || !strings.HasPrefix(tag, fmt.Sprint(shard, ".")) {
				t.Errorf("shard %d of %d has %s, whose slot %d is not from %d to under %d", shard, shards, k.Base(), slot, least, end)
			}
		}
		if k := NewKeys("lapse", 0, shards); !slices.Contains(first, k) {
			t.Errorf("shard 0 of %d has %s, which is not among the first keys %v", shards, k.Base(), first)
		}
	}
	for i, k := range first {
		if slices.Index(first, k) != i {
			t.Errorf("%s is twice among the first keys", k.Base())
		}
	}
}
