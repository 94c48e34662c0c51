package controller

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/schema"
)

// UpgradeType says what a change of a feature's level may do.
const (
	upgradeOnly     = 1
	safeDowngrade   = 2
	unsafeDowngrade = 3
)

// UpdateFeatures is API 57, versions 0 to 2: all of the levels are changed, or none. A feature that stands there twice
// counts as it stands last, as in Kafka.
func (c *Controller) UpdateFeatures(x Context, req *kmsg.UpdateFeaturesRequest) Result {
	resp := req.ResponseKind().(*kmsg.UpdateFeaturesResponse)
	records, err := c.updateFeatures(req)
	if err != nil {
		e := *asKerr(err)
		e.Text = "The update failed for all features since the following feature had an error: " + e.Message()
		setError(&resp.ErrorCode, &resp.ErrorMessage, &e)
		return Result{Response: resp}
	}
	if req.Version < 2 {
		for _, u := range req.FeatureUpdates {
			o := kmsg.NewUpdateFeaturesResponseResult()
			o.Feature, o.ErrorMessage = u.Feature, new("NONE")
			resp.Results = append(resp.Results, o)
		}
	}
	if req.ValidateOnly {
		return Result{Response: resp}
	}
	res := atomic(records, resp)
	for _, u := range req.FeatureUpdates {
		if u.Feature == metadata.KRaftVersionFeature && u.MaxVersionLevel > c.kraftVersion() {
			res.KRaftVersion = u.MaxVersionLevel
		}
	}
	return res
}

func asKerr(err error) *kerr.Error {
	if e, ok := err.(*kerr.Error); ok {
		return e
	}
	return kerr.UnknownServerError
}

func (c *Controller) updateFeatures(req *kmsg.UpdateFeaturesRequest) ([]Record, error) {
	img := c.Image()
	proposed := make(map[string]int16)
	for name, level := range img.Features() {
		proposed[name] = level
	}
	for _, u := range req.FeatureUpdates {
		proposed[u.Feature] = u.MaxVersionLevel
	}
	var records []Record
	elr := false
	for i, u := range req.FeatureUpdates {
		if slices.ContainsFunc(req.FeatureUpdates[i+1:], func(later kmsg.UpdateFeaturesRequestFeatureUpdate) bool { return later.Feature == u.Feature }) {
			continue
		}
		kind := u.UpgradeType
		if req.Version == 0 {
			kind = upgradeOnly // Kafka's controller doesn't look at AllowDowngrade
		}
		r, err := c.updateFeature(u.Feature, u.MaxVersionLevel, kind, func(f string) int16 { return proposed[f] })
		if err != nil {
			return nil, err
		}
		if r != nil {
			records = append(records, Record{r, 0})
		}
		elr = elr || u.Feature == metadata.EligibleLeaderReplicasVersionFeature && u.MaxVersionLevel > 0
	}
	if elr {
		records = append(c.elrSafety(), records...)
	}
	return records, nil
}

func (c *Controller) updateFeature(name string, level int16, kind int8, others func(string) int16) (*schema.FeatureLevelRecord, error) {
	refuse := func(format string, args ...any) error {
		return kerr.InvalidUpdateVersion.With("Invalid update version %d for feature %s. %s", level, name, fmt.Sprintf(format, args...))
	}
	img := c.Image()
	current := img.FeatureLevel(name)
	switch {
	case kind < upgradeOnly || kind > unsafeDowngrade:
		return nil, refuse("The controller does not support the given upgrade type.")
	case level < 0:
		return nil, refuse("A feature version cannot be less than 0.")
	}
	if why := c.notSupported(name, level); why != "" {
		return nil, refuse("%s", why)
	}
	switch {
	case level < current && kind == upgradeOnly:
		return nil, refuse("Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade.")
	case level > current && kind != upgradeOnly:
		return nil, refuse("Can't downgrade to a newer version.")
	}
	switch name {
	case metadata.MetadataVersionFeature:
		return c.updateMetadataVersion(level, kind)
	case metadata.KRaftVersionFeature:
		// It stands in a control record of the quorum, not among the metadata.
		switch now := c.kraftVersion(); {
		case level == now:
			return nil, nil
		case level < now:
			return nil, refuse("Can't downgrade the version of this feature.")
		case c.opt.CheckKRaftVersion == nil:
			return nil, refuse("The quorum cannot change it.")
		}
		return nil, c.opt.CheckKRaftVersion(level)
	}
	if len(metadata.LevelsOf(name)) == 0 {
		return nil, refuse("Feature %s not found.", name)
	}
	if err := metadata.CheckDependencies(name, level, others); err != nil {
		return nil, refuse("%s", err)
	}
	return &schema.FeatureLevelRecord{Name: name, FeatureLevel: level}, nil
}

func (c *Controller) kraftVersion() int16 {
	if c.opt.KRaftVersion == nil {
		return 0
	}
	return c.opt.KRaftVersion()
}

func (c *Controller) updateMetadataVersion(level int16, kind int8) (*schema.FeatureLevelRecord, error) {
	next, now := metadata.Version(level), c.Image().MetadataVersion()
	if !next.Known() {
		return nil, kerr.InvalidUpdateVersion.With("Invalid metadata.version %d. Valid versions are from %d to %d.", level, metadata.MinVersion, metadata.LatestVersion)
	}
	if next < now {
		changed := false
		for v := next + 1; v <= now; v++ {
			changed = changed || v.Facts().MetadataChanged
		}
		if changed {
			why := "Refusing to perform the requested downgrade because it might delete metadata information."
			if kind == unsafeDowngrade {
				why = "Unsafe metadata downgrade is not supported in this version."
			}
			return nil, kerr.InvalidUpdateVersion.With("Unsupported metadata.version downgrade from %d to %d. %s", now, level, why)
		}
	}
	return &schema.FeatureLevelRecord{Name: metadata.MetadataVersionFeature, FeatureLevel: level}, nil
}

// notSupported says which node of the cluster doesn't know a feature's level, or "".
func (c *Controller) notSupported(name string, level int16) string {
	why := func(who string, lo, hi int16) string {
		switch {
		case level == 0 && lo == 0 || level >= lo && level <= hi:
			return ""
		case lo == 0 && hi == 0:
			return who + " does not support this feature."
		case lo == hi:
			return fmt.Sprintf("%s only supports versions %d", who, lo)
		}
		return fmt.Sprintf("%s only supports versions %d-%d", who, lo, hi)
	}
	lo, hi, _ := metadata.SupportedRange(name, c.opt.UnstableFeatureVersionsEnable)
	if w := why(fmt.Sprintf("Local controller %d", c.opt.NodeID), lo, hi); w != "" {
		return w
	}
	img := c.Image()
	find := func(features []metadata.SupportedFeature) (lo, hi int16) {
		for _, f := range features {
			if f.Name == name {
				return f.Min, f.Max
			}
		}
		return 0, 0
	}
	for b := range img.Brokers() {
		lo, hi := find(b.Features)
		if w := why(fmt.Sprintf("Broker %d", b.ID), lo, hi); w != "" {
			return w
		}
	}
	if !img.MetadataVersion().Facts().ControllerRegistrationSupported {
		return ""
	}
	found := []kafka.BrokerID{c.opt.NodeID}
	for k := range img.Controllers() {
		if k.ID == c.opt.NodeID {
			continue
		}
		lo, hi := find(k.Features)
		if w := why(fmt.Sprintf("Controller %d", k.ID), lo, hi); w != "" {
			return w
		}
		found = append(found, k.ID)
	}
	for _, id := range c.opt.QuorumNodes {
		if !slices.Contains(found, id) {
			return fmt.Sprintf("controller %d has not registered, and may not support this feature", id)
		}
	}
	return ""
}

// ControllerRegistration is API 70, version 0.
func (c *Controller) ControllerRegistration(x Context, req *kmsg.ControllerRegistrationRequest) Result {
	if !c.Image().MetadataVersion().Facts().ControllerRegistrationSupported {
		return Result{Response: ErrorResponse(req, kerr.UnsupportedVersion.With("The current MetadataVersion is too old to support controller registrations."))}
	}
	r := &schema.RegisterControllerRecord{ControllerID: req.ControllerID, IncarnationID: req.IncarnationID}
	for _, l := range req.Listeners {
		r.EndPoints = append(r.EndPoints, schema.RegisterControllerRecordControllerEndpoint{Name: l.Name, Host: l.Host, Port: l.Port, SecurityProtocol: l.SecurityProtocol})
	}
	for _, f := range req.Features {
		r.Features = append(r.Features, schema.RegisterControllerRecordControllerFeature{Name: f.Name, MinSupportedVersion: f.MinSupportedVersion, MaxSupportedVersion: f.MaxSupportedVersion})
	}
	slices.SortStableFunc(r.Features, func(a, b schema.RegisterControllerRecordControllerFeature) int {
		return strings.Compare(a.Name, b.Name)
	})
	return atomic([]Record{{r, 0}}, req.ResponseKind())
}

// UnregisterController is API 94, version 0.
func (c *Controller) UnregisterController(x Context, req *kmsg.UnregisterControllerRequest) Result {
	id := kafka.BrokerID(req.ControllerID)
	var err error
	switch {
	case !c.Image().MetadataVersion().Facts().ControllerUnregistrationSupported:
		err = kerr.UnsupportedVersion.With("The current MetadataVersion is too old to support controller unregistration.")
	case id == c.opt.NodeID:
		err = kerr.InvalidRequest.With("Controller cannot unregister itself while it is active.")
	case c.Image().Controller(id) == nil:
		err = kerr.ControllerIDNotRegistered.With("Controller ID %d is not currently registered.", req.ControllerID)
	}
	if err != nil {
		return Result{Response: ErrorResponse(req, err)}
	}
	return atomic([]Record{{&schema.UnregisterControllerRecord{ControllerID: req.ControllerID}, 0}}, req.ResponseKind())
}

// producerIDBlock is how many producer ids a broker gets at a time, as in Kafka.
const producerIDBlock = 1000

// AllocateProducerIDs is API 67, version 0. No id is ever given out twice.
func (c *Controller) AllocateProducerIDs(x Context, req *kmsg.AllocateProducerIDsRequest) Result {
	if err := c.checkBrokerEpoch(req.BrokerID, req.BrokerEpoch); err != nil {
		return Result{Response: ErrorResponse(req, err)}
	}
	first := max(c.Image().NextProducerID(), 0)
	if first > 1<<63-1-producerIDBlock {
		return Result{Response: ErrorResponse(req, kerr.UnknownServerError.With("Exhausted all producerIds as the next block's end producerId has exceeded the int64 type limit"))}
	}
	resp := req.ResponseKind().(*kmsg.AllocateProducerIDsResponse)
	resp.ProducerIDStart, resp.ProducerIDLen = first, producerIDBlock
	r := &schema.ProducerIdsRecord{BrokerID: req.BrokerID, BrokerEpoch: req.BrokerEpoch, NextProducerID: first + producerIDBlock}
	return atomic([]Record{{r, 0}}, resp)
}
