package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const rewritePoll = 100 * time.Millisecond

// Rewrite lets the server write its append-only file and its snapshot anew, as far as it may have them, and
// waits until it has. A server with an append-only file has a snapshot from then on. Of a cluster, all nodes do it, one
// after the other. A [store.ErrDenied] means that the user may not ask for it. The replicas behind a Sentinel are not
// reached.
func (p *Shard) Rewrite(ctx context.Context) error {
	cluster, ok := p.client.(*redis.ClusterClient)
	if !ok {
		return rewrite(ctx, p.client)
	}
	turn := make(chan struct{}, 1) // a rewrite is work: one node at a time
	return cluster.ForEachShard(ctx, func(ctx context.Context, node *redis.Client) error {
		turn <- struct{}{}
		defer func() { <-turn }()
		if err := rewrite(ctx, node); err != nil {
			return fmt.Errorf("node %s: %w", node.Options().Addr, err)
		}
		return nil
	})
}

func rewrite(ctx context.Context, node redis.Cmdable) error {
	p, err := info(ctx, node, "persistence")
	if err != nil || len(p) == 0 { // a server without that section, as miniredis, has no files
		return explainDenied(err)
	}
	if p["aof_enabled"] == "1" {
		busy := func(p map[string]string) bool {
			return p["aof_rewrite_in_progress"] != "0" || p["aof_rewrite_scheduled"] != "0"
		}
		if err := background(ctx, node, "the rewrite of the append-only file", "aof_last_bgrewrite_status", busy,
			node.BgRewriteAOF); err != nil {
			return err
		}
	}
	// A server that saves by itself has a file; so has one that has loaded it. One with an append-only file does not load
	// its other file, and does not tell of it: that may be from before, as after a change from one kind to the other.
	if p["aof_enabled"] == "1" || p["rdb_saves"] != "0" && p["rdb_saves"] != "" || p["rdb_last_load_keys_loaded"] != "0" {
		busy := func(p map[string]string) bool { return p["rdb_bgsave_in_progress"] != "0" }
		return background(ctx, node, "the snapshot", "rdb_last_bgsave_status", busy, node.BgSave)
	}
	return nil
}

// background begins something in the background of the server, and waits until it is done. A process of Redis that was
// started meanwhile, or that has become the master, has done nothing, whatever its status is: there it begins anew.
func background(ctx context.Context, node redis.Cmdable, what, status string, busy func(map[string]string) bool,
	begin func(context.Context) *redis.StatusCmd) error {
	begun, process := false, ""
	for {
		p, err := info(ctx, node, "persistence")
		now := ""
		if err == nil {
			now, err = processOf(ctx, node) // asked last: so the status is of this process, or of one that has ended
		}
		if now != process {
			begun, process = false, now
		}
		switch {
		case err != nil:
			return explainDenied(err)
		case busy(p): // also with one that somebody else has begun, and that is too old
		case begun && p[status] != "ok":
			return fmt.Errorf("%s failed: look at the log of Redis", what)
		case begun:
			return nil
		default:
			err := begin(ctx).Err()
			if err != nil && !isBusy(err) {
				return explainDenied(err)
			}
			begun = err == nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, ctx.Err())
		case <-time.After(rewritePoll):
		}
	}
}

// isBusy reports whether the server does something else in its background now.
func isBusy(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && (strings.Contains(answer.Error(), "in progress") ||
		strings.Contains(answer.Error(), "can't be executed") || strings.Contains(answer.Error(), "can't BGSAVE"))
}
