package cli

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/metadata"
)

// How a feature's level may change, in the protocol's numbers.
const (
	upgradeFeature         = 1
	safeFeatureDowngrade   = 2
	unsafeFeatureDowngrade = 3
)

// runFeatures is kafka-features: describe, upgrade, downgrade, disable, version-mapping, feature-dependencies.
func runFeatures(e *Env) int {
	p := featuresParser()
	n, err := p.Parse(e.Args, e.Stdout)
	if err == nil {
		err = featuresCommand(e, p, n)
	}
	var a *ArgError
	switch {
	case err == nil, errors.Is(err, ErrHelp):
		return 0
	case errors.As(err, &a):
		fmt.Fprintf(e.Stderr, "Command line error: %s. Type --help for help.", a.Text)
	default:
		e.Errorf("%s", err.Error())
	}
	return 1
}

func featuresParser() *ArgParser {
	p := &ArgParser{Prog: "kafka-features", Description: "Shows and changes the features that the cluster has agreed on."}
	p.Group(false,
		Arg{Names: []string{"--bootstrap-server"}, Meta: "BOOTSTRAP_SERVER", Help: "The brokers to connect to."},
		Arg{Names: []string{"--bootstrap-controller"}, Meta: "BOOTSTRAP_CONTROLLER", Help: "The controllers to connect to."})
	p.Add(Arg{Names: []string{"--command-config"}, Meta: "COMMAND_CONFIG", Help: "A file with properties for the AdminClient."})
	describe := p.Sub("describe", "Show the features that a node supports and the levels in force.")
	describe.Add(Arg{Names: []string{"--node-id"}, Meta: "NODE_ID", Type: "Integer", Help: "The node to ask; any without it."})
	change := func(name, help string, unsafe bool) {
		s := p.Sub(name, help)
		s.Add(Arg{Names: []string{"--metadata"}, Meta: "METADATA", Help: "(DEPRECATED) the metadata.version to " + name + " to, such as 4.0-IV3; use --release-version or --feature."})
		s.Add(Arg{Names: []string{"--release-version"}, Meta: "RELEASE_VERSION", Help: "The release, such as 4.0, whose levels all features are to get."})
		s.Add(Arg{Names: []string{"--feature"}, Meta: "FEATURE", Repeat: true, Help: "The level of one feature, as feature=level; several times for several."})
		if unsafe {
			s.Add(Arg{Names: []string{"--unsafe"}, Help: "Change it even if metadata may be lost."})
		}
		s.Add(Arg{Names: []string{"--dry-run"}, Help: "Only check whether it could be done."})
	}
	change("upgrade", "Raise levels of features.", false)
	change("downgrade", "Lower levels of features.", true)
	disable := p.Sub("disable", "Lower features to level 0.")
	disable.Add(Arg{Names: []string{"--feature"}, Meta: "FEATURE", Repeat: true, Help: "A feature; several times for several."})
	disable.Add(Arg{Names: []string{"--unsafe"}, Help: "Disable it even if metadata may be lost."})
	disable.Add(Arg{Names: []string{"--dry-run"}, Help: "Only check whether it could be done."})
	mapping := p.Sub("version-mapping", "Show the levels of all features that go with a release.")
	mapping.Add(Arg{Names: []string{"--release-version"}, Meta: "RELEASE_VERSION", Help: fmt.Sprintf("The release; the default is %s.", metadata.LatestProductionVersion)})
	dependencies := p.Sub("feature-dependencies", "Show which features a level of a feature needs.")
	dependencies.Add(Arg{Names: []string{"--feature"}, Meta: "FEATURE", Repeat: true, Required: true, Help: "The level of a feature, as feature=level; several times for several."})
	return p
}

func featuresCommand(e *Env, p *ArgParser, n *Namespace) error {
	switch n.Command { // these ask nobody
	case "version-mapping":
		return storageVersionMapping(e, n)
	case "feature-dependencies":
		return featureDependencies(e, n)
	}
	if !n.Has("bootstrap-server") && !n.Has("bootstrap-controller") {
		return &ArgError{p, "You must specify either --bootstrap-controller or --bootstrap-server."}
	}
	a, err := argparseAdmin(e, n.Get("command-config"), n.Get("bootstrap-server"), n.Get("bootstrap-controller"))
	if err != nil {
		return err
	}
	defer a.Close()
	switch n.Command {
	case "describe":
		return describeFeatures(e, a, n)
	case "upgrade":
		return changeFeatures(e, a, n, "upgrade", upgradeFeature)
	case "downgrade":
		return changeFeatures(e, a, n, "downgrade", downgradeKind(n))
	case "disable":
		var updates []metadata.FeatureSetting
		for _, f := range n.All("feature") {
			if slices.ContainsFunc(updates, func(u metadata.FeatureSetting) bool { return u.Name == f }) {
				return tersef("Feature %s was specified more than once.", f)
			}
			updates = append(updates, metadata.FeatureSetting{Name: f})
		}
		return updateFeatures(e, a, "disable", updates, downgradeKind(n), n.Has("dry-run"))
	}
	return nil
}

func downgradeKind(n *Namespace) int8 {
	if n.Has("unsafe") {
		return unsafeFeatureDowngrade
	}
	return safeFeatureDowngrade
}

// featureText is a level as it is shown: a metadata.version by its name.
func featureText(feature string, level int16) string {
	if feature != metadata.MetadataVersionFeature {
		return strconv.Itoa(int(level))
	}
	if v := metadata.Version(level); v.Known() {
		return v.String()
	}
	return fmt.Sprintf("UNKNOWN [%d]", level)
}

func describeFeatures(e *Env, a *admin, n *Namespace) error {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "highwater", KafkaVersion
	node := int32(-1)
	if n.Has("node-id") {
		node = int32(n.Int64("node-id"))
	}
	r, err := a.broker("describeFeatures", node, a.timeout, req)
	if err != nil {
		return executionError(err)
	}
	resp := r.(*kmsg.ApiVersionsResponse)
	if err := codeError(resp.ErrorCode, nil); err != nil {
		return executionError(err)
	}
	finalized := make(map[string]int16)
	for _, f := range resp.FinalizedFeatures {
		finalized[f.Name] = f.MaxVersionLevel
	}
	epoch := "-"
	if resp.FinalizedFeaturesEpoch >= 0 {
		epoch = strconv.FormatInt(resp.FinalizedFeaturesEpoch, 10)
	}
	sort.Slice(resp.SupportedFeatures, func(i, j int) bool { return resp.SupportedFeatures[i].Name < resp.SupportedFeatures[j].Name })
	for _, f := range resp.SupportedFeatures {
		e.Printf("Feature: %-40s  SupportedMinVersion: %-15s  SupportedMaxVersion: %-15s  FinalizedVersionLevel: %-15s  Epoch: %s\n",
			f.Name, featureText(f.Name, f.MinVersion), featureText(f.Name, f.MaxVersion), featureText(f.Name, finalized[f.Name]), epoch)
	}
	return nil
}

func changeFeatures(e *Env, a *admin, n *Namespace, verb string, kind int8) error {
	var updates []metadata.FeatureSetting
	if n.Has("release-version") {
		if n.Has("metadata") || n.Has("feature") {
			return terse("Can not specify `release-version` with other feature flags.")
		}
		v, err := storageVersion(n.Get("release-version"), true)
		if err != nil {
			return err
		}
		updates = append(updates, metadata.FeatureSetting{Name: metadata.MetadataVersionFeature, Level: int16(v)})
		for _, name := range metadata.FeatureNames() {
			updates = append(updates, metadata.FeatureSetting{Name: name, Level: metadata.DefaultLevel(name, v)})
		}
	}
	if n.Has("metadata") {
		e.Println(" `metadata` flag is deprecated and may be removed in a future release.")
		v, err := storageVersion(n.Get("metadata"), true)
		if err != nil {
			return err
		}
		updates = append(updates, metadata.FeatureSetting{Name: metadata.MetadataVersionFeature, Level: int16(v)})
	}
	for _, s := range n.All("feature") {
		f, err := parseFeatureLevel(s)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(updates, func(u metadata.FeatureSetting) bool { return u.Name == f.Name }) {
			return tersef("Feature %s was specified more than once.", f.Name)
		}
		updates = append(updates, f)
	}
	return updateFeatures(e, a, verb, updates, kind, n.Has("dry-run"))
}

func updateFeatures(e *Env, a *admin, verb string, updates []metadata.FeatureSetting, kind int8, dryRun bool) error {
	if len(updates) == 0 {
		return tersef("You must specify at least one feature to %s", verb)
	}
	sort.Slice(updates, func(i, j int) bool { return updates[i].Name < updates[j].Name })
	req := kmsg.NewPtrUpdateFeaturesRequest()
	req.TimeoutMillis = int32(a.timeout.Milliseconds())
	req.ValidateOnly = dryRun
	for _, u := range updates {
		f := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
		f.Feature, f.MaxVersionLevel, f.UpgradeType, f.AllowDowngrade = u.Name, u.Level, kind, kind != upgradeFeature
		req.FeatureUpdates = append(req.FeatureUpdates, f)
	}
	r, err := a.controller("updateFeatures", req)
	each := make(map[string]error) // where the answer has results of its own for features
	if err == nil {
		resp := r.(*kmsg.UpdateFeaturesResponse)
		err = errorOf(codeError(resp.ErrorCode, resp.ErrorMessage))
		for _, f := range resp.Results {
			each[f.Feature] = errorOf(codeError(f.ErrorCode, f.ErrorMessage))
		}
	}
	failed := 0
	for _, u := range updates {
		why := err
		if why == nil {
			why = each[u.Name]
		}
		switch {
		case why != nil:
			failed++
			could, what := "Could not ", fmt.Sprintf("%s %s to %d", verb, u.Name, u.Level)
			if dryRun {
				could = "Can not "
			}
			if verb == "disable" {
				what = "disable " + u.Name
			}
			e.Printf("%s%s. %s\n", could, what, why.Error())
		default:
			was, what := "was", fmt.Sprintf("%sd to %d.", verb, u.Level)
			if dryRun {
				was = "can be"
			}
			if verb == "disable" {
				what = "disabled."
			}
			e.Printf("%s %s %s\n", u.Name, was, what)
		}
	}
	if failed > 0 {
		return tersef("%d out of %d operation(s) failed.", failed, len(updates))
	}
	return nil
}

func featureDependencies(e *Env, n *Namespace) error {
	for _, s := range n.All("feature") {
		f, err := parseFeatureLevel(s)
		if err != nil {
			return err
		}
		if f.Name == metadata.MetadataVersionFeature {
			v := metadata.Version(f.Level)
			if !v.Known() {
				return tersef("No metadata.version with feature level %d", f.Level)
			}
			e.Printf("%s=%d (%s) has no dependencies.\n", f.Name, f.Level, v)
			continue
		}
		levels := metadata.LevelsOf(f.Name)
		if len(levels) == 0 {
			return tersef("Unknown feature: %s", f.Name)
		}
		i := slices.IndexFunc(levels, func(l metadata.FeatureLevel) bool { return l.Level == f.Level })
		switch {
		case i < 0:
			return tersef("No feature:%s with feature level %d", f.Name, f.Level)
		case len(levels[i].Dependencies) == 0:
			e.Printf("%s=%d has no dependencies.\n", f.Name, f.Level)
			continue
		}
		e.Printf("%s=%d requires:\n", f.Name, f.Level)
		for _, d := range levels[i].Dependencies {
			if d.Feature == metadata.MetadataVersionFeature {
				e.Printf("    %s=%d (%s)\n", d.Feature, d.Level, metadata.Version(d.Level))
			} else {
				e.Printf("    %s=%d\n", d.Feature, d.Level)
			}
		}
	}
	return nil
}
