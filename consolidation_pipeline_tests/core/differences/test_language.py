"""Word lists of languages, and the language of texts."""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from itertools import chain

import pytest

from consolidation_pipeline.core.differences.language import LANGUAGES, split_words
from consolidation_pipeline.core.differences.language_detection import detect_language
from consolidation_pipeline.core.differences.language_loader import check_keys, load_language

TEXTS = {
    "en": "The service is restarted at night, and its logs are kept for a week.",
    "de": "Der Dienst wird nachts neu gestartet, und seine Protokolle werden eine Woche lang aufbewahrt.",
    "es": "El servicio se reinicia por la noche y sus registros se guardan durante una semana.",
    "fr": "Le service est redémarré la nuit et ses journaux sont gardés pendant une semaine.",
    "zh": "服务在夜间重启，日志保留一周。",
    "ja": "サービスは夜間に再起動され、ログは一週間保存されます。",
}

# Words of which one does not stand for the other, whatever the sentence.
DIFFERENT = {
    "en": """
        upload download; review approve; review merge; copy move; archive delete; encrypt sign; email sms;
        email letter; call email; kitchen garden; kitchen bathroom; manager colleague; daily weekly; weekly
        monthly; monthly quarterly; pause stop; restart reload; merge rebase; lunch dinner; breakfast lunch;
        cat dog; start end; import export; buy rent; rent own; staff customer; test documentation; warn
        block; store send; early late; bus train; car bike; tea coffee; milk cream; apple pear; red blue;
        left right; brother sister; son daughter; father mother; uncle aunt; doctor nurse; teacher student;
        user customer; user admin; admin owner; author reviewer; sender recipient; buyer seller; tenant
        landlord; employer employee; boss assistant; server client; primary replica; staging production;
        development staging; error warning; warning info; bug feature; issue feature; build deploy; deploy
        test; compile deploy; build release; create update; update delete; create delete; read write; insert
        update; push pull; fetch push; commit push; branch tag; branch repository; file folder; file
        database; table column; row column; key value; cpu memory; disk memory; cache database; cache queue;
        queue topic; topic message; log metric; metric alert; alert dashboard; password username; token
        password; certificate key; get post; request response; input output; argument return; class
        function; function variable; string number; integer string; list set; array map; true false; null
        zero; minimum maximum; first last; increase decrease; accept reject; allow deny; approve reject;
        agree refuse; enable disable; lock unlock; open close; mount unmount; connect disconnect; add
        remove; include exclude; show hide; hire fire; arrive leave; arrive depart; win lose; lend borrow;
        give take; send receive; teach learn; ask answer; question answer; sell buy; earn spend; save spend;
        save delete; keep discard; keep delete; retry cancel; retry skip; skip repeat; ignore log; log
        throw; catch throw; freeze delete; disable delete; hide delete; mute block; pause cancel; postpone
        cancel; postpone advance; delay cancel; morning evening; day night; summer winter; monday sunday;
        weekday weekend; breakfast dinner; water milk; sugar salt; salt pepper; meat fish; chicken beef;
        vegetarian vegan; allergic fond; love hate; like dislike; prefer avoid; hot cold; warm cool; big
        small; old new; fast slow; cheap expensive; free paid; public private; internal external; local
        remote; online offline; manual automatic; static dynamic; required optional; safe dangerous; clean
        dirty; full empty; open closed; easy hard; happy sad; healthy sick; rich poor; strong weak; light
        dark; light heavy; loud quiet; wet dry; north south; office home; school university; hotel
        apartment; house apartment; basement attic; roof cellar; door window; table chair; desk chair; phone
        laptop; laptop tablet; keyboard mouse; printer scanner; camera microphone; photo video; book film;
        song film; guitar piano; football tennis; swim run; walk drive; train plane; ticket passport; visa
        passport; invoice contract; invoice order; order delivery; refund discount; price tax; salary bonus;
        budget cost; revenue profit; income expense; credit debit; cash card; euro dollar; meter mile;
        kilogram pound; hour minute; second minute; week month; year month; city country; street city;
        village country; river mountain; sea lake; tree bush; rose tulip; bread cake; wine beer; knife fork;
        shirt trousers; shoes socks; hat gloves; headache fever; cough fever; vitamin antibiotic; hospital
        pharmacy; surgery checkup; monitor test; monitor control; check change; verify change; check skip;
        review write; write review; design build; plan build; propose decide; suggest decide; recommend
        require; advise forbid; may must; request require; ask tell; report fix; detect fix; find fix;
        detect prevent; warn prevent; notify ask; schedule cancel; book cancel; reserve buy; reserve pay;
        order pay; pay refund; charge refund; ship return; deliver return; collect deliver; pick deliver;
        load unload; pack unpack; wrap unwrap; install remove; upgrade downgrade; update downgrade; commit
        revert; apply revert; deploy revert; release withdraw; publish withdraw; publish draft; draft final;
        draft publish; sign cancel; extend cancel; renew cancel; renew expire; start expire; rotate revoke;
        rotate delete; revoke grant; assign revoke; assign request; move delete; move copy; rename delete;
        rename move; split merge; sort filter; filter group; count sum; average total; sum average; compress
        encrypt; hash encrypt; encode encrypt; validate transform; parse validate; format validate; lint
        format; lint test; mock test; unit integration; cause prevent; cause result; problem solution;
        question solution; risk benefit; advantage disadvantage; goal method; owner reviewer; maintainer
        user; maintainer contributor; guest host; speaker audience; team company; department company;
        department team; supplier customer; vendor client; competitor partner; partner customer; parent
        child; child adult; friend colleague; neighbour friend; wait start; wait continue; run stop; start
        pause; boil fry; bake boil; wash iron; wash dry; sweep paint; repair replace; replace remove; repair
        buy; fix ignore; fix report; test deploy; train test
    """,
    "de": """
        hochladen herunterladen; prüfen freigeben; kopieren verschieben; löschen archivieren; täglich wöchentlich;
        starten beenden; kaufen mieten; kunde mitarbeiter; brief email; früh spät; hund katze; montag dienstag;
        mittagessen abendessen; bruder schwester; arzt lehrer; senden erhalten; fragen antworten; erlauben verbieten;
        öffnen schließen; hinzufügen entfernen; gewinnen verlieren; geben nehmen; rechnung vertrag; preis rabatt; keller
        dachboden; tee kaffee; zug auto; verschieben absagen; reservieren stornieren; aktivieren deaktivieren; wichtig
        dringend; billig teuer; sauber schmutzig; leise laut; fehler warnung; testen ausrollen; schreiben lesen; spalte
        zeile; ursache lösung; planen bauen; tasse becher; decke kissen; balkon terrasse; torte keks; pfand miete;
        kassieren zahlen; gießen schneiden; säen ernten; impfen wiegen; backen braten; einfrieren kühlen; erwärmen
        kühlen; schälen schneiden; fegen wischen; waschen bügeln; trocknen waschen; kaufen verkaufen; bestellen abholen;
        liefern abholen; anrufen schreiben; anrufen besuchen; korrigieren schreiben; unterschreiben lesen; drucken
        scannen; abheften löschen; kopieren löschen; verschieben kopieren; verlängern kündigen; verschieben vorziehen;
        verschieben ausfallen; aussetzen absagen; reservieren bezahlen; mieten kaufen; leihen schenken; hinzufügen
        wegnehmen; öffnen streichen; abschließen aufschließen; einschalten heizen; hochtragen hinunterbringen;
        zusammenbauen zerlegen; aufhängen wegräumen; füllen leeren; zählen wiegen; testen genehmigen; prüfen
        unterschreiben; putzen desinfizieren; behandeln operieren; gang fenster; küche bad; schlafzimmer wohnzimmer; tür
        fenster; dach boden; garage keller; garten terrasse; schrank schublade; tisch stuhl; teller glas; milch sahne;
        käse butter; nuss mandel; apfel birne; huhn pute; kuh kalb; schaf ziege; traktor lkw; auto motorrad; zug bus;
        arzt krankenschwester; zahnarzt kinderarzt; lehrer schulleiter; schüler lehrer; vater sohn; bruder cousin; kunde
        lieferant; mitarbeiter chef; praktikant lehrling; rechnung angebot; rechnung bestellung; rechnung quittung;
        preis gehalt; vertrag brief; morgens abends; rot blau; alt neu; teuer gratis; leer voll; roh gekocht;
        vegetarisch vegan; hoch niedrig; breit lang; klausur unterricht; heft buch; bleistift kugelschreiber; fieber
        husten; erkältung grippe; rechnung beleg
    """,
    "es": """
        subir descargar; revisar aprobar; copiar mover; borrar archivar; diario semanal; empezar terminar; comprar
        alquilar; cliente empleado; carta correo; perro gato; almuerzo cena; padre madre; enviar recibir; preguntar
        responder; permitir prohibir; abrir cerrar; añadir quitar; ganar perder; factura contrato; precio descuento;
        sótano ático; té café; tren coche; aplazar cancelar; reservar cancelar; encender apagar; barato caro; limpio
        sucio; escribir leer; columna fila; causa solución; vaso copa; plato cuenco; balcón terraza; caldera radiador;
        manta sábana; sartén olla; sumar restar; cobrar pagar; regar podar; sembrar cosechar; vacunar pesar; hornear
        freír; congelar enfriar; calentar enfriar; pelar cortar; barrer fregar; lavar planchar; secar lavar; doblar
        planchar; coser lavar; comprar vender; encargar recoger; entregar recoger; enviar recoger; llamar escribir;
        llamar visitar; inscribir pagar; aprobar suspender; corregir escribir; firmar leer; firmar enviar; imprimir
        escanear; archivar borrar; copiar borrar; mover copiar; cambiar mover; renovar cancelar; prorrogar cancelar;
        aplazar adelantar; retrasar adelantar; suspender cancelar; reservar pagar; alquilar comprar; alquilar vender;
        prestar regalar; donar vender; ingresar retirar; abrir pintar; cerrar bloquear; encender calentar; apagar bajar;
        subir bajar; montar desmontar; colgar guardar; poner quitar; llenar vaciar; contar pesar; medir pesar; probar
        aprobar; revisar firmar; analizar probar; limpiar desinfectar; curar operar; operar vacunar; recetar tomar;
        pasillo ventana; cocina baño; dormitorio salón; puerta ventana; techo suelo; garaje sótano; jardín terraza;
        armario cajón; mesa silla; plato vaso; horno nevera; lavadora secadora; leche nata; queso mantequilla; pan
        bollo; nuez almendra; cacahuete nuez; manzana pera; tomate pimiento; pollo pavo; ternera cerdo; vaca ternero;
        oveja cabra; gallina pato; caballo burro; tractor camión; coche moto; tren autobús; avión barco; médico
        enfermera; dentista pediatra; profesor director; factura recibo
    """,
    "fr": """
        télécharger envoyer; vérifier approuver; copier déplacer; supprimer archiver; quotidien hebdomadaire; commencer
        finir; acheter louer; client employé; lettre courriel; chien chat; déjeuner dîner; frère soeur; envoyer
        recevoir; demander répondre; autoriser interdire; ouvrir fermer; ajouter enlever; gagner perdre; facture
        contrat; prix remise; cave grenier; thé café; train voiture; reporter annuler; réserver annuler; allumer
        éteindre; écrire lire; colonne ligne; cause solution; tasse verre; casserole poêle; volet rideau; facture devis;
        élève professeur; location vente; payer facturer; arroser tailler; semer récolter; vacciner peser; cuire frire;
        congeler refroidir; chauffer refroidir; éplucher couper; balayer laver; laver repasser; sécher laver; plier
        repasser; acheter vendre; commander livrer; livrer récupérer; envoyer récupérer; appeler écrire; appeler
        visiter; réussir échouer; corriger écrire; signer lire; signer envoyer; imprimer scanner; archiver supprimer;
        copier supprimer; déplacer copier; changer déplacer; renouveler résilier; reporter avancer; retarder avancer;
        suspendre annuler; réserver payer; louer acheter; prêter donner; donner vendre; ouvrir peindre; fermer bloquer;
        allumer chauffer; monter descendre; monter démonter; accrocher ranger; remplir vider; compter peser; mesurer
        peser; tester approuver; vérifier signer; nettoyer désinfecter; soigner opérer; couloir fenêtre; cuisine salon;
        chambre salon; porte fenêtre; toit sol; garage cave; jardin terrasse; armoire tiroir; table chaise; assiette
        verre; four frigo; lait crème; fromage beurre; noix amande; pomme poire; tomate poivron; poulet dinde; veau
        porc; vache veau; mouton chèvre; poule canard; cheval âne; tracteur camion; voiture moto; train bus; avion
        bateau; médecin infirmière; dentiste pédiatre; professeur directeur; père fils; frère cousin; client
        fournisseur; employé patron; stagiaire patron; facture commande; facture reçu; prix salaire; impôt amende;
        contrat lettre; matin soir; rouge bleu; vieux neuf
    """,
    "zh": """
        复制 移动; 删除 归档; 客户 员工; 午餐 晚餐; 推迟 取消; 购买 租; 医生 老师; 汽车 自行车;
        表格 图表; 合同 发票; 原因 方案; 检查 批准; 写 读; 修理 更换; 打扫 消毒; 病人 医生; 租户 房东; 护士 医生;
        店员 顾客; 发货 退货; 发烧 咳嗽; 番茄 土豆; 冷藏 冷冻; 出差 休假; 入职 离职; 辞职 辞退; 迟到 早退;
        白班 夜班; 前天 后天; 上周 下周; 月初 月底; 利润 成本; 窗户 窗帘; 死机 卡顿; 线程 进程; 分支 标签;
        接口 页面; 编译 部署; 表扬 批评; 签到 签收; 押金 租金; 考试 作业; 课本 课表
    """,
    "ja": """
        コピー 移動; 昼食 夕食; 顧客 社員; 延期 取り消し; 医師 先生; 契約 請求書; 確認 承認; 自転車 車; 手紙 メール;
        修理 交換; 頼む 断る; 頼む 頼まれ; 預け 預かる; 貸出 返却; 患者 医師; 大家 借主; 店員 客; 洗う 拭く;
        掃除 消毒; 入荷 出荷; 発熱 咳; 夜勤 日勤; 先週 今週; 月初 月末; 領収書 請求書; 値上げ 値下げ;
        入口 出口; 暖房 冷房; 欠席 遅刻; 採用 解雇; 褒め 叱る; 座る 立つ; 乗る 降り; ブランチ タグ;
        マージ コミット; 利益 費用; 祖母 祖父; 本社 支店; 長所 短所; 翌日 当日; 点灯 消灯; 冷蔵 冷凍
    """,
}


@pytest.mark.parametrize("code", TEXTS)
def test_language_is_detected(code: str) -> None:
    assert detect_language(TEXTS[code]) == (code if code in LANGUAGES else None)


@pytest.mark.parametrize(
    "text", ["Сервис перезапускается ночью.", "서비스는 밤에 다시 시작됩니다.", "zorbel quandrix vantelope melkor"]
)
def test_unknown_language_is_none(text: str) -> None:
    assert detect_language(text) is None


@pytest.mark.parametrize("code", LANGUAGES)
def test_no_word_has_two_meanings(code: str) -> None:
    raw = tomllib.loads(
        (files("consolidation_pipeline.core.differences") / "languages" / f"{code}.toml").read_text("utf-8")
    )
    poles = (words for category in raw["cues"].values() for words in category.values())
    meanings = Counter(chain(raw["light"], raw["labels"], *raw["markers"].values(), *poles))
    assert [entry for entry, count in meanings.items() if count > 1] == []


def test_misspelt_key_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^de: nothing reads the keys particels; known: light, particles$"):
        check_keys("de", {"light": [], "particels": []}, {"light", "particles"})


@pytest.mark.parametrize("code", LANGUAGES)
def test_synonyms_are_no_antonyms(code: str) -> None:
    language = load_language(code)
    for pair in language.antonyms:
        representatives = {language.synonyms.get(word, word) for word in pair}
        assert len(pair) == len(representatives) == 2, pair


def load_synonyms(code: str) -> dict[str, list[str]]:
    folder = files("consolidation_pipeline.core.differences") / "languages"
    return tomllib.loads((folder / f"{code}_synonyms.toml").read_text("utf-8"))


def read_entry(code: str, entry: str) -> str:
    """Return the key of a word or phrase of the lists."""
    language = load_language(code)
    written = " ".join(map(language.stem, (word for one in split_words(entry) for word in one.split("-"))))
    return language.synonyms.get(written, written)


@pytest.mark.parametrize("code", LANGUAGES)
def test_group_of_synonyms_has_no_opposites(code: str) -> None:
    opposites = load_language(code).opposites
    for group in load_synonyms(code)["groups"]:
        keys = {read_entry(code, entry) for entry in group.split(", ")}
        assert not [key for key in keys if opposites.get(key, frozenset()) & keys], group


@pytest.mark.parametrize("code", LANGUAGES)
def test_group_of_synonyms_has_different_words(code: str) -> None:
    for group in load_synonyms(code)["groups"]:
        entries = group.split(", ")
        assert len(entries) > 1, group
        assert len({read_entry(code, entry) for entry in entries}) == len(entries), group


@pytest.mark.parametrize("code", LANGUAGES)
def test_synonym_is_no_function_word(code: str) -> None:
    language = load_language(code)
    entries = {entry for group in load_synonyms(code)["groups"] for entry in group.split(", ")}
    roles = {entry: language.phrases.get(split_words(entry)) for entry in entries - language.light_verbs}
    assert {entry for entry, meaning in roles.items() if meaning and meaning.role != "label"} == set()


@pytest.mark.parametrize("code", LANGUAGES)
def test_synonym_denies_nothing(code: str) -> None:
    phrases = load_language(code).phrases
    for group in load_synonyms(code)["groups"]:
        cues = [phrases.get((word,)) for entry in group.split(", ") for word in split_words(entry)]
        assert not [cue for cue in cues if cue and cue.key in ("polarity", "restriction")], group


@pytest.mark.parametrize("code", [code for code in LANGUAGES if "forms" in load_synonyms(code)])
def test_form_belongs_to_one_word(code: str) -> None:
    language = load_language(code)
    lines = [line.split(", ") for line in load_synonyms(code)["forms"]]
    lemmas = {language.stem(line[0]) for line in lines}
    for first, *others in lines:
        assert {language.stem(form) for form in others} <= {language.stem(first), *lemmas}, first


@pytest.mark.parametrize("code", DIFFERENT)
def test_different_words_are_no_synonyms(code: str) -> None:
    language = load_language(code)
    for pair in DIFFERENT[code].replace("\n", " ").split(";"):
        one, other = (read_entry(code, word) for word in pair.split())
        assert one != other, pair
        assert not language.may_replace(one, other), pair


@pytest.mark.parametrize("code", LANGUAGES)
def test_neutral_poles_exist(code: str) -> None:
    language = load_language(code)
    poles = {(phrase.key, phrase.pole) for phrase in language.phrases.values() if phrase.role == "cue"}
    assert language.neutral <= poles


def test_words_of_all_scripts_are_split() -> None:
    assert split_words("Don’t restart サーバー 没有") == ("don't", "restart", "サーバー", "没", "有")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Peter doesn't eat meat.", "en"),
        ("Restart worker, delete folder, verify backup.", "en"),
        ("Ordner löschen, Sicherung prüfen", "de"),
        ("Le service n'arrête plus la file.", "fr"),
        ("CI takes 12 minutes.", "en"),
        ("Clara speaks French fluently.", "en"),
    ],
)
def test_short_note_has_a_language(text: str, code: str) -> None:
    assert detect_language(text) == code


@pytest.mark.parametrize("code", ["en", "de", "es", "fr"])
def test_threads_stem_words_alike(code: str) -> None:
    stem = load_language(code).stem.__wrapped__
    words = [
        f"{head}{middle}{tail}"
        for head in "abcd"
        for middle in ("ation", "isier", "ment")
        for tail in ("ing", "ed", "s", "lich", "eur", "ado")
    ]
    expected = list(map(stem, words))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda _: list(map(stem, words)), range(16)))
    finally:
        sys.setswitchinterval(interval)
    assert found == [expected] * 16
