//! Resolves model names of the settings to a back end or a pool.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use super::{
    CallRole, ModelId, ModelProviders, POOL, Provider, ResolveError,
    breakers::CircuitBreakers,
    pool::{ModelPool, ModelRoute, PoolList, PoolMember},
    quote_text,
};
use crate::{
    clock::SharedClock,
    config::{Level, ModelSettings, ResolvedModelName, Strategy},
    types::Family,
};

impl ModelProviders {
    /// Resolves `provider:model`, or a name, to one model.
    pub fn model(&self, spec: &str) -> Result<ModelId, ResolveError> {
        match self.names.resolve(spec).map_err(ResolveError::Name)? {
            ResolvedModelName::Model(spec) => self.find_model(spec),
            ResolvedModelName::Pool(..) => Err(ResolveError::unknown(spec)),
        }
    }

    /// Resolves `claude:opus`, `gemini:pro`, `role:architect`, `stub:drafter` and the like to a back end and a model
    /// id. `pool:NAME` resolves to the pool, which chooses the model at each call.
    pub fn resolve(&self, spec: &str) -> Result<(Arc<dyn Provider>, ModelId), ResolveError> {
        let name = match self.names.resolve(spec).map_err(ResolveError::Name)? {
            ResolvedModelName::Model(spec) => {
                let id = self.find_model(spec)?;
                let back_end = self.back_end(&id.provider).ok_or_else(|| ResolveError::unknown(spec))?;
                return Ok((Arc::clone(back_end), id));
            }
            ResolvedModelName::Pool(name, _) => name,
        };
        let pool = self.pools.get(name).ok_or_else(|| ResolveError::unknown(spec))?;
        if pool.members().all(|member| member.route.is_err()) {
            return Err(ResolveError::EmptyPool {
                pool: name.to_owned(),
                why: pool.missing_requirement().unwrap_or_default(),
            });
        }
        let id = ModelId { provider: POOL.to_owned(), model: name.to_owned(), family: None };
        Ok((Arc::clone(pool) as Arc<dyn Provider>, id))
    }

    /// Returns the maximum prompt tokens of the model `id`; see
    /// [`Model::prompt_room`](super::models::Model::prompt_room). A pool has the highest maximum among its members,
    /// because it skips members that are too small for a prompt.
    pub fn prompt_room(&self, id: &ModelId, system: &str, schema: Option<&serde_json::Value>) -> u64 {
        let of = |id: &ModelId| {
            self.table.find(&id.provider, &id.model).map_or(u64::MAX, |row| row.prompt_room(system, schema))
        };
        match self.pools.get(&id.model).filter(|_| id.provider == POOL) {
            None => of(id),
            Some(pool) => {
                let routes = pool.members().filter_map(|member| member.route.as_ref().ok());
                routes.map(|route| of(&route.id)).max().unwrap_or(u64::MAX)
            }
        }
    }

    /// Returns the maximum time of a call to the model `id`.
    pub fn deadline(&self, id: &ModelId) -> Duration {
        let several = id.provider == POOL || self.has_fallback(id);
        if several { self.timeouts.both_legs() } else { self.timeouts.call }
    }

    /// Whether a call to the model `id` may start a program on this machine. For a pool, whether any member may start
    /// one.
    pub fn runs_program(&self, id: &ModelId) -> bool {
        let program = |provider: &str| matches!(provider, "claude" | "opencode");
        match self.pools.get(&id.model).filter(|_| id.provider == POOL) {
            None => program(&id.provider),
            Some(pool) => {
                let mut routes = pool.members().filter_map(|member| member.route.as_ref().ok());
                routes.any(|route| program(&route.id.provider))
            }
        }
    }

    fn has_fallback(&self, id: &ModelId) -> bool {
        id.provider == "claude" && self.keys.anthropic.get().api_key.is_some()
    }

    /// Checks at start that the reviewer can be of another family than the drafter. The serving model of every response
    /// is checked again later. Unknown pool members, and members unfit for the role, are ignored.
    pub fn check_pair(&self, drafter: &str, reviewer: &str) -> Result<(), ResolveError> {
        let drafting = self.families(drafter, CallRole::Drafter, false)?;
        let reviewing = self.families(reviewer, CallRole::Reviewer, false)?;
        let mut all = drafting.iter().chain(&reviewing);
        match all.next() {
            Some(family) if all.all(|other| other == family) => {
                let (drafter, reviewer) = (drafter.to_owned(), reviewer.to_owned());
                Err(ResolveError::SameFamily { drafter, reviewer, family: family.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Checks every pair of drafter and reviewer in the settings, and the accepted successors. Also checks that the
    /// reviewer has at least one family to which no role that writes a change is restricted.
    pub fn check_models(&self, settings: &ModelSettings) -> Result<(), ResolveError> {
        for (_, drafter) in settings.drafters() {
            self.check_pair(drafter, &settings.reviewer)?;
        }
        for (asked, ids) in &settings.successors {
            self.find_model(asked)?;
            let priced = |id: &String| self.table.find_served(id).is_some_and(|row| !row.prices.is_empty());
            if let Some(unknown) = ids.iter().find(|id| !priced(id)) {
                return Err(ResolveError::Successor { asked: asked.clone(), id: quote_text(unknown) });
            }
        }
        let mut writing: Vec<Family> = Vec::new();
        for role in ["tester", "implementer", "maintainer"] {
            // A role with several families can choose one that leaves a reviewer.
            match &self.families(settings.drafter_of(role), CallRole::Drafter, false)?[..] {
                [family, others @ ..] if others.iter().all(|other| other == family) => {
                    writing.push(family.clone())
                }
                _ => {}
            }
        }
        let reviewing = self.families(&settings.reviewer, CallRole::Reviewer, false)?;
        if reviewing.iter().any(|family| !writing.contains(family)) {
            return Ok(());
        }
        let families = writing.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
        let families = families.into_iter().collect::<Vec<_>>().join(" and ");
        Err(ResolveError::NobodyReviews { families, reviewer: settings.reviewer.clone() })
    }

    /// Returns the families that may not draft a document by `authors`, because then no family would remain to review
    /// the document. Reviewers that lack a requirement are considered only if no other reviewer remains.
    pub fn families_to_exclude(&self, reviewer: &str, authors: &[Family]) -> Vec<Family> {
        let others = |able: bool| {
            let mut left = self.families(reviewer, CallRole::Reviewer, able).unwrap_or_default();
            left.retain(|family| !authors.contains(family));
            left
        };
        let mut left = others(true);
        if left.is_empty() {
            left = others(false);
        }
        if left.iter().all(|family| *family == left[0]) { left } else { Vec::new() }
    }

    /// Returns the families of the models that may have this role. If `able` is true, pool members that lack a
    /// requirement are left out.
    fn families(&self, spec: &str, role: CallRole, able: bool) -> Result<Vec<Family>, ResolveError> {
        let mut families = Vec::new();
        let mut unfit = None;
        let (back_end, id) = self.resolve(spec)?;
        match self.pools.get(&id.model).filter(|_| back_end.name() == POOL) {
            None => match self.excluded_role(&id.provider).filter(|(side, _)| *side == role) {
                Some((_, why)) => unfit = Some(why),
                None => families.extend(id.family),
            },
            Some(pool) => {
                let routes = pool.members().filter_map(|member| member.route.as_ref().ok());
                for route in routes.filter(|route| !able || route.back_end.missing_requirement().is_none()) {
                    match route.check_role(role) {
                        Ok(()) => families.extend(route.id.family.clone()),
                        Err(why) => unfit = Some(why),
                    }
                }
            }
        }
        match unfit {
            Some(why) if families.is_empty() => Err(ResolveError::Unfit { spec: spec.to_owned(), role, why }),
            _ => Ok(families),
        }
    }

    /// Builds all pools. A member that cannot be resolved stays in its pool, together with the reason.
    pub(super) fn build_pools(
        &self,
        breakers: &Arc<CircuitBreakers>,
        clock: &SharedClock,
    ) -> BTreeMap<String, Arc<ModelPool>> {
        let made = self.names.pools.iter().map(|(name, given)| {
            let list = |specs: &[String]| {
                let members = specs.iter().map(|spec| {
                    let route = self.build_route(spec, given.strategy).map_err(|error| error.to_string());
                    PoolMember { spec: spec.clone(), route: route.map_err(|why| quote_text(&why)) }
                });
                PoolList::new(members.collect(), given.strategy)
            };
            let lists = [list(&given.primary), list(&given.fallback)];
            let pool = ModelPool::new(name, lists, given.retry, Arc::clone(breakers), Arc::clone(clock));
            (name.clone(), Arc::new(pool))
        });
        made.collect()
    }

    /// Resolves a pool member like [`ModelProviders::resolve`]. An OpenCode model is an error unless the operator has
    /// confirmed that OpenCode calls the requested model, because other members can draft instead.
    pub fn resolve_member(&self, spec: &str) -> Result<(Arc<dyn Provider>, ModelId), ResolveError> {
        match self.resolve(spec)? {
            (_, id) if id.provider == "opencode" && !self.attest_opencode => Err(ResolveError::Unattested),
            member => Ok(member),
        }
    }

    fn build_route(&self, spec: &str, strategy: Strategy) -> Result<ModelRoute, ResolveError> {
        let (back_end, id) = self.resolve_member(spec)?;
        let rank = match strategy {
            Strategy::RoundRobin | Strategy::Priority => 0,
            Strategy::Cheapest => {
                let price = self.table.find(&id.provider, &id.model).and_then(|row| row.prices.first());
                price.map_or(u64::MAX, |price| price.input.saturating_add(price.output))
            }
            Strategy::Capability => self.capability_level(&id).map_or(u64::MAX, |level| level as u64),
        };
        let (timeouts, claude, anthropic) =
            (self.timeouts, id.provider == "claude", self.keys.anthropic.clone());
        let turn = Box::new(move || match claude && anthropic.get().api_key.is_some() {
            true => timeouts.both_legs(),
            false => timeouts.first_leg,
        });
        Ok(ModelRoute { back_end, unfit: self.excluded_role(&id.provider), rank, turn, id })
    }

    /// Returns the highest capability level for which the settings name this model, whatever its provider.
    fn capability_level(&self, id: &ModelId) -> Option<Level> {
        let stands = |spec: &str| self.model(spec).is_ok_and(|known| known.model == id.model);
        self.names.capabilities.iter().find(|(_, spec)| stands(spec)).map(|(level, _)| *level)
    }

    /// Returns the role for which this provider must not be used, and the reason.
    fn excluded_role(&self, provider: &str) -> Option<(CallRole, &'static str)> {
        match provider {
            "gemini" if !self.gemini_drafts => Some((
                CallRole::Drafter,
                "Gemini only reviews, unless allow_gemini_drafts = true is set under [models]",
            )),
            // It passes its tools to the model, whatever its configuration.
            "opencode" => Some((CallRole::Reviewer, "OpenCode cannot review")),
            _ => None,
        }
    }

    fn find_model(&self, spec: &str) -> Result<ModelId, ResolveError> {
        let (provider, name) = spec.split_once(':').ok_or_else(|| ResolveError::unknown(spec))?;
        let row = self.table.find(provider, name).ok_or_else(|| match provider {
            "ollama" | "openai" | "opencode" => {
                ResolveError::NotListed { provider: provider.to_owned(), name: quote_text(name) }
            }
            _ => ResolveError::unknown(spec),
        })?;
        let (model, family) = (row.id.clone(), Some(row.family.clone()));
        Ok(ModelId { provider: provider.to_owned(), model, family })
    }

    fn back_end(&self, provider: &str) -> Option<&Arc<dyn Provider>> {
        Some(match provider {
            "claude" => &self.claude,
            "anthropic" => &self.anthropic,
            "gemini" => &self.gemini,
            "ollama" => &self.ollama,
            "openai" => &self.openai,
            "opencode" => &self.opencode,
            "stub" => &self.stub,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::SystemClock,
        config::{Names, PoolSettings, Timeouts},
    };

    fn pool(primary: &[&str], strategy: Strategy) -> PoolSettings {
        let usual = Names::default().pools["default"].clone();
        let primary = primary.iter().map(|spec| (*spec).to_owned()).collect();
        PoolSettings { primary, fallback: Vec::new(), strategy, ..usual }
    }

    fn providers(pools: &[(&str, &[&str])], gemini_drafts: bool) -> ModelProviders {
        keyed(pools, gemini_drafts, None)
    }

    fn keyed(pools: &[(&str, &[&str])], gemini_drafts: bool, gemini_key: Option<&str>) -> ModelProviders {
        let mut settings = ModelSettings::with_real_models(
            std::path::Path::new("/nowhere"),
            gemini_key.map(Into::into),
            None,
        );
        settings.gemini.drafts = gemini_drafts;
        let made =
            pools.iter().map(|(name, primary)| ((*name).to_owned(), pool(primary, Strategy::Priority)));
        settings.names.pools.extend(made);
        ModelProviders::new(&settings, Arc::new(SystemClock)).unwrap()
    }

    #[test]
    fn drafter_and_reviewer_must_belong_to_different_model_families() {
        let pools: &[(&str, &[&str])] = &[
            ("claudes", &["claude:opus", "role:engineer", "ollama:unknown"]),
            ("mixed", &["claude:opus", "preset:gemini-pro"]),
            ("nobody", &["ollama:unknown"]),
        ];
        let check = |gemini_drafts, drafter: &str, reviewer: &str| {
            let checked = providers(pools, gemini_drafts).check_pair(drafter, reviewer);
            checked.map_err(|error| error.to_string())
        };
        for (drafter, reviewer) in [
            ("pool:claudes", "gemini:pro"),
            ("pool:default", "preset:gemini-flash"),
            ("capability:high", "pool:mixed"),
            ("pool:mixed", "role:junior"),
            ("pool:mixed", "pool:mixed"),
        ] {
            assert_eq!(check(true, drafter, reviewer), Ok(()), "{drafter} {reviewer}");
        }
        for (gemini_drafts, drafter, reviewer, why) in [
            (false, "pool:claudes", "role:junior", "both of the claude family"),
            // Gemini does not draft, so only Claude is left of `mixed`.
            (false, "pool:mixed", "role:junior", "both of the claude family"),
            (false, "role:architect", "capability:low", "both of the claude family"),
            (false, "preset:gemini-pro", "claude:opus", "can't be the drafter: Gemini only reviews"),
            (false, "pool:nobody", "gemini:pro", "no model of pool:nobody can be used: ollama:unknown: "),
            (
                false,
                "pool:none",
                "gemini:pro",
                "there is no pool called \"none\"; there are claudes, default",
            ),
        ] {
            let error = check(gemini_drafts, drafter, reviewer).unwrap_err();
            assert!(error.contains(why), "{drafter} {reviewer}: {error}");
        }
    }

    #[test]
    fn role_settings_are_refused_if_no_model_family_is_left_for_the_reviewer() {
        let check = |reviewer: &str, roles: &[(&str, &str)]| {
            let pools: &[(&str, &[&str])] = &[("mixed", &["claude:opus", "gemini:pro"])];
            let mut settings = ModelSettings::with_real_models(std::path::Path::new("/nowhere"), None, None);
            settings.reviewer = reviewer.to_owned();
            settings.roles =
                roles.iter().map(|(role, spec)| ((*role).to_owned(), (*spec).to_owned())).collect();
            providers(pools, true).check_models(&settings).map_err(|error| error.to_string())
        };
        assert_eq!(check("pool:mixed", &[("tester", "claude:haiku"), ("architect", "gemini:pro")]), Ok(()));
        assert_eq!(
            check(
                "pool:mixed",
                &[("tester", "gemini:pro"), ("implementer", "pool:mixed"), ("maintainer", "pool:mixed")]
            ),
            Ok(())
        );
        let error = check("pool:mixed", &[("tester", "gemini:pro")]).unwrap_err();
        assert!(error.contains("models of claude and gemini write the tests, code and fixes of one change, but pool:mixed has no model"), "{error}");
    }

    #[test]
    fn families_excluded_from_drafting_leave_one_family_for_the_reviewer() {
        let providers = providers(&[("mixed", &["claude:opus", "gemini:pro"])], true);
        let (claude, gemini) = (Family("claude".into()), Family("gemini".into()));
        for (reviewer, authors, spared) in [
            ("gemini:pro", vec![], vec![gemini.clone()]),
            ("gemini:pro", vec![claude.clone()], vec![gemini.clone()]),
            ("pool:mixed", vec![], vec![]),
            ("pool:mixed", vec![claude.clone()], vec![gemini.clone()]),
            ("pool:mixed", vec![gemini.clone()], vec![claude.clone()]),
            // The settings have changed since the draft; no reviewer is left either way.
            ("gemini:pro", vec![gemini], vec![]),
        ] {
            assert_eq!(providers.families_to_exclude(reviewer, &authors), spared, "{reviewer} {authors:?}");
        }
    }

    #[test]
    fn reviewer_without_a_route_counts_only_if_no_other_reviewer_remains() {
        let providers = keyed(&[("mixed", &["claude:opus", "gemini:pro"])], true, Some("a key"));
        let (claude, gemini) = (Family("claude".into()), Family("gemini".into()));
        for (authors, spared) in
            [(vec![], &gemini), (vec![claude.clone()], &gemini), (vec![gemini.clone()], &claude)]
        {
            assert_eq!(
                providers.families_to_exclude("pool:mixed", &authors),
                std::slice::from_ref(spared),
                "{authors:?}"
            );
        }
    }

    #[test]
    fn claude_timeout_includes_an_api_call_only_when_an_api_key_is_set() {
        let settings = |key: Option<&str>| {
            let mut settings =
                ModelSettings::with_real_models(std::path::Path::new("/nowhere"), None, key.map(Into::into));
            settings.names.pools.insert("p".into(), pool(&["claude:opus", "gemini:pro"], Strategy::Priority));
            settings
        };
        let (bare, keyed) = (settings(None), settings(Some("a key")));
        let providers = ModelProviders::new(&bare, Arc::new(SystemClock)).unwrap();
        let (claude, id) = providers.resolve("claude:opus").unwrap();
        let times = || {
            let routes = providers.pools["p"].members().map(|member| member.route.as_ref().unwrap());
            let turns: Vec<_> = routes.map(|route| (route.turn)()).collect();
            (turns, providers.deadline(&id), claude.is_billed())
        };
        let Timeouts { call, first_leg, .. } = bare.timeouts;
        let both = bare.timeouts.both_legs();
        assert_eq!(times(), (vec![first_leg, first_leg], call, false));
        // The key comes and goes with a reload.
        assert_eq!(providers.reload_keys(&keyed), ["ANTHROPIC_API_KEY"]);
        assert_eq!(times(), (vec![both, first_leg], both, true));
        assert_eq!(providers.reload_keys(&bare), ["ANTHROPIC_API_KEY"]);
        assert_eq!(times(), (vec![first_leg, first_leg], call, false));
    }

    #[test]
    fn default_pool_works_with_any_reviewer_once_the_operator_attests_opencode() {
        let mut settings = ModelSettings::rehearsal(std::path::Path::new("/nowhere"));
        settings.attest_opencode = true;
        let providers = ModelProviders::new(&settings, Arc::new(SystemClock)).unwrap();
        assert!(providers.pools["default"].members().all(|member| member.route.is_ok()));
        for reviewer in ["gemini:pro", "claude:opus", "stub:reviewer"] {
            assert_eq!(providers.check_pair("pool:default", reviewer), Ok(()));
        }
    }

    #[test]
    fn default_pool_skips_opencode_members_unless_the_operator_attests_opencode() {
        let providers = providers(&[], false);
        let (pool, id) = providers.resolve("pool:default").unwrap();
        assert_eq!((pool.name(), id.to_string().as_str(), id.family), (POOL, "pool:default", None));
        let known = |member: &PoolMember| (member.spec.clone(), member.route.is_ok());
        let members: Vec<_> = providers.pools["default"].members().map(known).collect();
        assert_eq!(
            members.iter().filter(|(_, known)| *known).map(|(spec, _)| spec.as_str()).collect::<Vec<_>>(),
            ["claude:sonnet", "claude:opus"]
        );
        assert_eq!(members.len(), 5);
    }

    #[test]
    fn pool_members_are_ordered_by_price_or_by_capability() {
        let mut settings = ModelSettings::rehearsal(std::path::Path::new("/nowhere"));
        let all = ["stub:drafter", "gemini:pro", "claude:opus", "claude:haiku", "claude:sonnet"];
        for (name, strategy) in [("price", Strategy::Cheapest), ("level", Strategy::Capability)] {
            settings.names.pools.insert(name.to_owned(), pool(&all, strategy));
        }
        let providers = ModelProviders::new(&settings, Arc::new(SystemClock)).unwrap();
        let order = |name: &str| -> Vec<_> {
            providers.pools[name].members().map(|member| member.spec.as_str()).collect()
        };
        assert_eq!(
            order("price"),
            ["claude:haiku", "claude:sonnet", "gemini:pro", "claude:opus", "stub:drafter"]
        );
        assert_eq!(
            order("level"),
            ["claude:opus", "claude:sonnet", "claude:haiku", "stub:drafter", "gemini:pro"]
        );
    }

    #[test]
    fn opencode_cannot_be_the_reviewer() {
        let (providers, opencode) = (providers(&[], false), "opencode:google/antigravity-gemini-3-pro");
        let error = providers.check_pair("claude:opus", opencode).unwrap_err().to_string();
        assert!(error.contains("can't be the reviewer: OpenCode cannot review"), "{error}");
        assert!(providers.check_pair(opencode, "claude:opus").is_ok());
    }
}
