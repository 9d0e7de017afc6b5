package shard

import (
	"context"

	"github.com/seed18712806/lapse/sink/store"
)

// faulty is the stored shard, of which a call may fail.
type faulty struct {
	*store.Shard
	r *rig
}

func (f *faulty) Clock() int64 { return f.r.clock }

func (f *faulty) Load(ctx context.Context) (store.State, error) {
	if err := f.r.pass("load"); err != nil {
		return store.State{}, err
	}
	return f.Shard.Load(ctx)
}

func (f *faulty) Leftovers(ctx context.Context) ([]string, error) {
	if err := f.r.pass("leftovers"); err != nil {
		return nil, err
	}
	return f.Shard.Leftovers(ctx)
}

func (f *faulty) Verify(ctx context.Context, version string, collections []string, indexes ...store.IndexOf) error {
	if err := f.r.pass("verify"); err != nil {
		return err
	}
	return f.Shard.Verify(ctx, version, collections, indexes...)
}

func (f *faulty) Copy(ctx context.Context, version string, collections []string, at store.CopyPlace, documents,
	bytes int) (store.Copied, error) {
	if err := f.r.pass("copy"); err != nil {
		return store.Copied{}, err
	}
	return f.Shard.Copy(ctx, version, collections, at, documents, bytes)
}

func (f *faulty) Fill(ctx context.Context, version, next string, changes []store.CollectionFill) error {
	if err := f.r.pass("fill"); err != nil {
		return err
	}
	return f.Shard.Fill(ctx, version, next, changes)
}

func (f *faulty) Count(ctx context.Context, version string,
	collections []string) (full []string, documents uint64, err error) {
	if err := f.r.pass("count"); err != nil {
		return nil, 0, err
	}
	return f.Shard.Count(ctx, version, collections)
}

func (f *faulty) Commit(ctx context.Context, pr store.Progress, configs []store.ConfigChange,
	changes []store.CollectionChanges) error {
	if err := f.r.pass("commit"); err != nil {
		return err
	}
	f.r.commits = append(f.r.commits, pr)
	return f.Shard.Commit(ctx, pr, configs, changes)
}

func (f *faulty) Take(ctx context.Context, s store.State, version string, rebuild uint64) error {
	if err := f.r.pass("take"); err != nil {
		return err
	}
	return f.Shard.Take(ctx, s, version, rebuild)
}

func (f *faulty) Refuse(ctx context.Context, s store.State, version string) error {
	if err := f.r.pass("refuse"); err != nil {
		return err
	}
	return f.Shard.Refuse(ctx, s, version)
}

func (f *faulty) ReadDocuments(ctx context.Context, version string, wants []store.Want) ([][]*store.Stored, error) {
	if err := f.r.pass("read"); err != nil {
		return nil, err
	}
	return f.Shard.ReadDocuments(ctx, version, wants)
}

func (f *faulty) Due(ctx context.Context, version string, cuts []store.Cut, limit, bytes int,
	whole bool) ([]store.Due, error) {
	if err := f.r.pass("due"); err != nil {
		return nil, err
	}
	return f.Shard.Due(ctx, version, cuts, limit, bytes, whole)
}

func (f *faulty) Clear(ctx context.Context, version string, next store.State, rebuild uint64) error {
	if err := f.r.pass("clear"); err != nil {
		return err
	}
	return f.Shard.Clear(ctx, version, next, rebuild)
}
